# penstock_embed_yaml(TARGET HEADER NAMESPACE NAME FOLDER): FOLDER/*.yaml become text inside the program, so that an
# installed one has them: TARGET can include HEADER, where NAMESPACE::NAME are pairs of a file's name and its text.
function(penstock_embed_yaml target header namespace name folder)
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.yaml)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files})
  set(entries "")
  foreach(file ${files})
    get_filename_component(stem ${file} NAME_WE)
    file(READ ${file} text)
    string(APPEND entries "    {\"${stem}\", R\"yaml(${text})yaml\"},\n")
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/generated/${header} @ONLY CONTENT
"// Made from @folder@/*.yaml.
#pragma once
#include <string_view>
#include <utility>

namespace @namespace@ {

inline constexpr std::pair<std::string_view, std::string_view> @name@[] = {
@entries@};

}  // namespace @namespace@
")
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/generated)
endfunction()

# penstock_embed(TARGET HEADER NAMESPACE NAME PATTERN): the files of PATTERN become text inside the program, so that an
# installed one has them: TARGET can include HEADER, where NAMESPACE::NAME are pairs of a file's name and its text.
function(penstock_embed target header namespace name pattern)
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${pattern})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files})
  set(entries "")
  foreach(file ${files})
    get_filename_component(stem ${file} NAME_WE)
    file(READ ${file} text)
    string(APPEND entries "    {\"${stem}\", R\"text(${text})text\"},\n")
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/generated/${header} @ONLY CONTENT
"// Made from @pattern@.
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

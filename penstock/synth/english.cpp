#include <array>

#include <fmt/format.h>

#include "penstock/synth/sentences.h"

namespace penstock {
namespace {

std::string english_digits(int n) { return fmt::format("{}", n); }

/// From 1 to 99; four digits are read as a year: 1852 is eighteen fifty-two. Years that end in 00 to 09 do
/// not occur.
std::string english_words(int n) {
  static constexpr std::array<const char*, 20> small = {
      "zero",     "one",     "two",     "three",     "four",     "five",    "six",
      "seven",    "eight",   "nine",    "ten",       "eleven",   "twelve",  "thirteen",
      "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
  static constexpr std::array<const char*, 10> tens = {"",      "",      "twenty",  "thirty", "forty",
                                                       "fifty", "sixty", "seventy", "eighty", "ninety"};
  if (n >= 100) return english_words(n / 100) + " " + english_words(n % 100);
  if (n < 20) return small[static_cast<std::size_t>(n)];
  const std::string ten = tens[static_cast<std::size_t>(n / 10)];
  return n % 10 == 0 ? ten : ten + "-" + small[static_cast<std::size_t>(n % 10)];
}

Grammar english_grammar() {
  return parse_grammar({
      {"text",
       "^{short}|^{short}|^{short}|^{clause}.|^{clause}.|^{opener}, {clause}.|"
       "^{opener}, there was {a} {adjective} {noun} {spot}.|^{question}|^{clause}{link}{clause}.|"
       "^{clause}{link}{clause}.|^{opener}, {clause}{link}{clause}.|^{clause}. ^{clause}.|"
       "^{short} ^{clause}{link}{clause}.|^{clause}; {clause}{link}{clause}.|"
       "^{clause}{link}{clause}{link}{clause}.|^{clause}{link}{clause}. ^{opener}, {clause}.|"
       "^{clause}. ^{opener}, {clause}{link}{clause}.|^{opener}, {clause}{link}{clause}. ^{question}|"
       "^{clause}{link}{clause}. ^{clause}{link}{clause}."},

      {"short",
       "come in, please.|not now.|be careful!|follow me, please.|listen to this.|wait a moment.|"
       "thank you very much.|good morning, {name}.|good night, {name}.|who is there?|where is {name}?|"
       "what a day!|{name} smiled.|{name} agreed at once.|nobody answered.|it was late.|we were early.|"
       "that was enough.|try it again.|here we are.|everything was ready.|{name} was right.|"
       "the door was open.|all of them laughed.|{titled} left early.|it took {2..20} minutes.|"
       "the answer was no.|they never came back."},

      {"clause",
       "{subject} {deed}|{subject} {deed}|{subject} {deed}|{subject} {adverb} {deed}|"
       "{subject} {deed} {ending}|{scene}"},
      {"link",
       ", and |, but |, so | while | because | before | after | until |, although |, and later |"
       " just as |, and in the end "},
      {"opener",
       "in the morning|later that day|after the storm|on {weekday} evening|in {1810..1899}|"
       "in {1911..1989}|early on {weekday}|to everyone's surprise|at the end of {month}|"
       "on the {ordinal} of {month}|for the first time|at {1..12}[:30= thirty]|a week before the wedding|"
       "as usual|not long ago|when the music stopped|by the following spring|at last|in those days|"
       "after a long silence"},
      {"ending",
       "again|at once|before breakfast|in the rain|without any help|for the last time|after lunch|"
       "on {weekday}|in spite of the cold"},
      {"adverb", "quietly|finally|suddenly|often|gladly|secretly|once|later|also|still"},

      {"subject",
       "{person}|{person}|{person}|{person}|{name}|{name}|{titled}|he|she|they|we|I|everyone|"
       "one of the guests"},
      {"person",
       "the old captain|my younger sister|the village teacher|her grandfather|our neighbour|"
       "the young doctor|the night watchman|a tall stranger|the baker's daughter|his brother|"
       "the station master|the gardener|an honest lawyer|the librarian|a group of students|"
       "the blind musician|the ship's cook|my uncle|the postman|the retired judge|a travelling salesman|"
       "the head nurse|the mayor|an old friend|the photographer|the shopkeeper|a farmer from the valley|"
       "the first pilot|the museum guide|the carpenter|two of the soldiers|the new engineer|the tailor|"
       "my cousin|the children|the widow next door|the fisherman|a famous painter|the conductor|"
       "the innkeeper"},
      {"name",
       "Anna|Peter|Martha|Edward|Helen|Thomas|Clara|Daniel|Ruth|Oliver|Sophie|Martin|Alice|George|Emma|"
       "Robert|Julia|Henry|Nora|Samuel|Lucy|Walter|Grace|Simon|Margaret|Philip"},
      {"titled",
       "[Mr.=Mister] {surname}|[Mrs.=Missus] {surname}|[Dr.=Doctor] {surname}|"
       "[Prof.=Professor] {surname}|[Capt.=Captain] {surname}"},
      {"surname",
       "Harper|Collins|Bennett|Gray|Fletcher|Morris|Turner|Webster|Holland|Parker|Dawson|Whitfield|"
       "Barlow|Mercer|Ashby|Langley"},

      {"deed",
       "{moved} {direction}|{moved} {direction}|carried {thing} {direction}|put {thing} {spot}|"
       "waited {place}|waited for {person} {place}|read {readable}|read {readable} to {person}|"
       "talked about {topic} with {person}|asked {person} about {topic}|"
       "told {person} everything about {topic}|wrote to {person} about {topic}|bought {food}|"
       "shared {food} with {person}|cooked {food} for {person}|found {thing} {spot}|"
       "lost {thing} on the way home|repaired the {machine}|sold {thing} for [£=]{12..95}[= pounds]|"
       "counted {12..95} {things}|brought {2..40} {things} to {person}|"
       "stayed {home} for {2..12} {periods}|slept for {2..12} hours|learned to play the {instrument}|"
       "listened to the {instrument} {place}|smiled and said nothing|fell asleep {place}|"
       "laughed at {topic}|opened the {opening}|closed the {opening}|remembered {topic}|"
       "forgot about {topic}|gave {thing} to {person}|showed {person} {thing}|"
       "heard a strange noise {place}|saw {person} {place}|hid {thing} {spot}|painted the {opening}|"
       "promised to help {person}|thanked {person} for {thing}|lived {home} for {3..60} years|"
       "borrowed {thing} from {person}|made a drawing of {thing}|walked {3..30} miles {direction}"},
      {"moved", "walked|hurried|ran|drove|wandered|rode|marched|went|travelled"},
      {"direction",
       "along the river|across the old bridge|towards the station|through the narrow streets|"
       "past the church|down the hill|back to the village|into the forest|over the frozen field|"
       "around the lake|out of town|to the harbour|up the mountain road|to the market"},
      {"spot",
       "on the kitchen table|under the bed|beside the fire|in the top drawer|behind the door|"
       "near the window|on the highest shelf|next to the lamp|under the apple tree|between two chairs|"
       "at the bottom of the stairs|in the back room"},
      {"place",
       "at the station|in the garden|outside the theatre|by the harbour|on the corner|in the great hall|"
       "near the fountain|at the library|in the waiting room|on the upper deck|at the edge of the forest|"
       "in a small hotel|on the platform|at [St.=Saint] Mary's|in the town square"},
      {"home",
       "by the sea|in a small hotel|above the bakery|near the harbour|in the mountains|"
       "at the edge of the forest|in the north of the country|on a farm"},
      {"scene",
       "the rain stopped|the wind grew stronger|the snow began to melt|the church bells rang|"
       "the lights went out|the train was late again|the shops closed early|the moon rose over the hills|"
       "the river froze|the last guests left|dinner was almost ready|the road was empty|"
       "nobody noticed anything|the clock struck {2..12}|the temperature fell to {2..20} degrees|"
       "a cold wind blew from the north|the price of bread rose by {5..40}[%= percent]|"
       "the ship sailed with {20..99} passengers|the smell of fresh bread filled the street|"
       "the harvest was poor that year|the sky turned dark|the whole town was silent|"
       "the birds flew south|the old mill burned down"},
      {"question",
       "where did you put {thing}?|do you remember {person}?|who left {thing} {spot}?|"
       "have you ever read {readable}?|why did {person} ask about {topic}?|"
       "how much did the {adjective} {noun} cost?|would you like {food}?|"
       "did {name} really wait {place} for {2..12} hours?|when will the train arrive?|"
       "can anyone here play the {instrument}?|what happened to {person} {place}?"},

      {"thing", "the {noun}|the {adjective} {noun}|the {adjective} {noun}|{a} {adjective} {noun}|{a} {noun}"},
      {"noun",
       "letter|map|lamp|basket|blanket|clock|key|ladder|mirror|camera|violin|suitcase|umbrella|bottle|"
       "bucket|chair|coat|compass|candle|envelope|hammer|helmet|kettle|knife|notebook|painting|"
       "photograph|watch|radio|ring|rope|scarf|telescope|ticket|toy boat|box|spoon|bicycle|drum|jar|"
       "lantern|typewriter|vase|book|hat|saddle|anchor|carpet|statue|telegram"},
      {"adjective",
       "old|broken|heavy|small|beautiful|empty|expensive|rusty|golden|enormous|ordinary|unusual|dusty|"
       "faded|green|blue|strange|ugly|elegant|borrowed|forgotten|painted|plain|little|cheap|antique|"
       "round|silver|damaged|curious|famous|brown|stolen|simple|yellow"},
      {"machine",
       "clock|camera|violin|radio|bicycle|typewriter|ladder|lantern|telescope|umbrella|drum|boat|piano"},
      {"things",
       "apples|letters|candles|books|stamps|bottles|coins|sheep|photographs|roses|boxes|eggs|maps|"
       "lanterns|tickets|chairs"},
      {"periods", "days|weeks|months|hours|nights|years"},
      {"readable",
       "the morning paper|a long letter from home|an old book about ships|the last page of the diary|"
       "the notice on the door|a short poem|the report from the hospital|three chapters of a novel|"
       "a travel guide|the doctor's instructions"},
      {"topic",
       "the weather|the price of bread|the new railway|the accident at the mine|an old promise|"
       "the history of the house|the election|the war|the missing money|a journey to the south|"
       "the harvest|the stars|the first frost|a dream|the music|the broken window|"
       "the future of the school|life at sea"},
      {"food",
       "fresh bread|hot soup|a basket of plums|fish and potatoes|an apple pie|roast chicken|a cup of tea|"
       "goat cheese|a bowl of rice|honey cakes|{2..12} eggs|a pot of coffee"},
      {"instrument", "piano|violin|flute|guitar|trumpet|cello|organ|accordion|harp"},
      {"opening", "door|window|gate|old chest|garden gate|shutters|front door|cupboard|back door"},
      {"ordinal",
       "[1st=first]|[2nd=second]|[3rd=third]|[4th=fourth]|[10th=tenth]|[12th=twelfth]|[15th=fifteenth]|"
       "[20th=twentieth]|[21st=twenty-first]|[28th=twenty-eighth]"},
      {"weekday", "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"},
      {"month", "January|February|March|April|May|June|July|August|September|October|November|December"},
  });
}

}  // namespace

const Language& english() {
  static const Language language{english_grammar(), english_digits, english_words, 0.058};
  return language;
}

}  // namespace penstock

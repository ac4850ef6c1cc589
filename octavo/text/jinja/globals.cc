// The functions that a template finds: Jinja's, and those that Transformers adds.
#include <fmt/format.h>

#include <array>
#include <ctime>

#include "octavo/text/jinja/operators.h"
#include "octavo/text/jinja/renderer.h"

namespace octavo::text::jinja {
namespace {

constexpr std::int64_t kMaxRange = 100'000;  // Jinja's

Value make_range(Renderer&, Arguments& arguments) {
  const auto given = bind(arguments, "range", {"", "", ""}, 1);
  std::array<std::int64_t, 3> numbers = {0, 0, 1};
  for (std::size_t i = 0; i < 3; ++i) {
    if (given[i]) numbers[i] = need_integer(*given[i], "range");
  }
  if (numbers[2] == 0) fail_render("range: the step is 0");
  const Range range =
      given[1] ? Range{numbers[0], numbers[1], numbers[2]} : Range{0, numbers[0], 1};
  if (range.size() > kMaxRange) fail_render(fmt::format("range: more than {} numbers", kMaxRange));
  return Value(range);
}

// The items of a dict, or of an iterable of pairs, and then the named arguments.
std::shared_ptr<Dict> dict_of(Renderer& renderer, Arguments& arguments, std::string_view callee) {
  if (arguments.positional.size() > 1)
    fail_render(fmt::format("{} takes at most 1 argument without a name", callee));
  auto dict = std::make_shared<Dict>(renderer.budget());
  if (!arguments.positional.empty()) {
    Value source = arguments.positional[0];
    if (source.as_dict() != nullptr)
      source = Value(View{DictPart::items, *source.get<std::shared_ptr<const Dict>>()});
    for (const Value& pair : all_items(source, renderer.budget())) {
      const Values both = all_items(pair, renderer.budget());
      if (both.size() != 2) fail_render(fmt::format("{} needs pairs of key and value", callee));
      dict->set(both[0], both[1]);
    }
  }
  renderer.budget().build_elements(2 * arguments.named.size());
  for (const auto& [name, value] : arguments.named) dict->set(Value::text(name), value);
  return dict;
}

Value make_dict(Renderer& renderer, Arguments& arguments) {
  return Value(std::shared_ptr<const Dict>(dict_of(renderer, arguments, "dict")));
}

Value make_namespace(Renderer& renderer, Arguments& arguments) {
  const std::shared_ptr<Dict> dict = dict_of(renderer, arguments, "namespace");
  Namespace* space = renderer.make_namespace();
  for (const auto& [key, value] : dict->items) {
    const std::string& name = need_text(key, "namespace");
    if (name.starts_with('_'))
      fail_render(fmt::format("a namespace cannot have the attribute '{}'", name));
    space->attributes.emplace_back(name, value);
  }
  return Value(space);
}

Value make_joiner(Renderer& renderer, Arguments& arguments) {
  const auto given = bind(arguments, "joiner", {"sep"});
  const Value separator = given[0].value_or(Value::text(", "));
  renderer.budget().text(1024);  // more than one takes
  const auto used = std::make_shared<bool>(false);
  return make_function(
      "<joiner>",
      [separator, used](Renderer&, Arguments& ignored) {
        bind(ignored, "a joiner", {});
        return std::exchange(*used, true) ? separator : Value::text("");
      },
      separator.depth());
}

// A namespace whose functions share a position; `current` is read by calling next and reset only.
Value make_cycler(Renderer& renderer, Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty())
    fail_render("cycler takes one or more values");
  const Value items = Value::tuple(arguments.positional);
  const auto at = std::make_shared<std::size_t>(0);
  Namespace* space = renderer.make_namespace();
  space->set("current", arguments.positional[0], renderer.budget());
  space->set("next",
             make_function(
                 "<cycler.next>",
                 [items, at, space](Renderer& r, Arguments& none) {
                   bind(none, "next", {});
                   const Values& all = *items.as_sequence();
                   const Value value = all[*at];
                   *at = (*at + 1) % all.size();
                   space->set("current", all[*at], r.budget());
                   return value;
                 },
                 items.depth()),
             renderer.budget());
  space->set("reset",
             make_function(
                 "<cycler.reset>",
                 [items, at, space](Renderer& r, Arguments& none) {
                   bind(none, "reset", {});
                   *at = 0;
                   space->set("current", (*items.as_sequence())[0], r.budget());
                   return Value();
                 },
                 items.depth()),
             renderer.budget());
  return Value(space);
}

Value raise_exception(Renderer& renderer, Arguments& arguments) {
  const auto given = bind(arguments, "raise_exception", {"message"}, 1);
  fail_render("the template refuses this: " + to_text(*given[0], renderer.budget()));
}

// One conversion; without a time zone and in the C locale.
std::string formatted_time(const std::tm& time, char letter) {
  if (letter == 'f') return "000000";
  if (letter == 'z' || letter == 'Z') return "";
  if (letter == 's') fail_unsupported("%s of strftime is not supported");
  const char pattern[] = {'%', letter, '\0'};
  char buffer[128];
  return std::string(buffer, std::strftime(buffer, sizeof buffer, pattern, &time));
}

Value strftime_now(Renderer& renderer, Arguments& arguments) {
  const auto given = bind(arguments, "strftime_now", {"format"}, 1);
  const std::string& format = need_text(*given[0], "strftime_now");
  const Now now = renderer.now();
  const auto day = std::chrono::floor<std::chrono::days>(now);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(now - day);
  std::tm time{};
  time.tm_year = static_cast<int>(date.year()) - 1900;
  time.tm_mon = static_cast<int>(static_cast<unsigned>(date.month())) - 1;
  time.tm_mday = static_cast<int>(static_cast<unsigned>(date.day()));
  time.tm_hour = static_cast<int>(clock.hours().count());
  time.tm_min = static_cast<int>(clock.minutes().count());
  time.tm_sec = static_cast<int>(clock.seconds().count());
  time.tm_wday = static_cast<int>(std::chrono::weekday(day).c_encoding());
  const std::chrono::local_days new_year(date.year() / std::chrono::January / 1);
  time.tm_yday = static_cast<int>((day - new_year).count());
  static constexpr std::string_view kLetters = "aAbBcCdDeFfgGhHIjklmMnpPrRsStTuUVwWxXyYzZ%";
  std::string result;
  for (std::size_t i = 0; i < format.size(); ++i) {
    const bool flag = format[i] == '%' && i + 2 < format.size() && format[i + 1] == '-';
    const std::size_t letter = i + (flag ? 2 : 1);
    if (format[i] != '%' || letter >= format.size() ||
        kLetters.find(format[letter]) == kLetters.npos) {
      result += format[i];
      continue;
    }
    std::string part = formatted_time(time, format[letter]);
    // %-d: without zeros in front.
    if (flag) part.erase(0, std::min(part.find_first_not_of('0'), part.size() - 1));
    result += part;
    renderer.budget().check_size(result.size());
    i = letter;
  }
  return Value::text(std::move(result));
}

}  // namespace

std::vector<std::pair<std::string_view, Value>> make_globals() {
  const auto function = [](std::string_view name, Value (*call)(Renderer&, Arguments&)) {
    return std::pair(name, make_function(fmt::format("<function {}>", name), call));
  };
  return {function("range", make_range),         function("dict", make_dict),
          function("namespace", make_namespace), function("joiner", make_joiner),
          function("cycler", make_cycler),       function("raise_exception", raise_exception),
          function("strftime_now", strftime_now)};
}

}  // namespace octavo::text::jinja

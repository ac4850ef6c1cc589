#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <new>

#include "octavo/text/regex_internal.h"
#include "octavo/text/unicode_internal.h"
#include "octavo/text/utf8.h"

namespace octavo::text {
namespace {

constexpr std::size_t kMaxPatternBytes = 1 << 16;
constexpr std::uint32_t kMaxNesting = 100;
constexpr std::uint32_t kHeapLimitKiB = 64 << 10;

// Steps that one match may take in a text of this size. Whoever scans a run and has to give it back
// takes a few per byte.
std::uint32_t match_limit(std::size_t bytes) {
  constexpr std::size_t kPerByte = 64;
  constexpr std::size_t kFloor = 10'000;
  constexpr std::size_t kMost = 1u << 31;
  return static_cast<std::uint32_t>(std::min(kFloor + kPerByte * bytes, kMost));
}

template <class T>
T* allocated(T* pointer) {
  if (pointer == nullptr) throw std::bad_alloc();
  return pointer;
}

}  // namespace

Result<Regex> Regex::compile(std::string_view pattern, std::string_view where) {
  if (pattern.size() > kMaxPatternBytes) {
    return fail(ErrorCode::unsupported,
                fmt::format("{}: a regular expression of {} bytes; at most {} are read", where,
                            pattern.size(), kMaxPatternBytes));
  }
  OCTAVO_TRY(const std::string translated, to_pcre2(pattern, where));
  const std::shared_ptr<pcre2_compile_context> context(
      allocated(pcre2_compile_context_create(nullptr)), pcre2_compile_context_free);
  pcre2_set_parens_nest_limit(context.get(), kMaxNesting);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  std::size_t offset = 0;
  pcre2_code* const code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                    &offset, context.get());
  if (code == nullptr) {
    std::array<PCRE2_UCHAR, 200> message{};
    pcre2_get_error_message(error, message.data(), message.size());
    return fail(
        ErrorCode::bad_file,
        fmt::format("{}: not a regular expression that can be read: {} (at {} of {})", where,
                    reinterpret_cast<const char*>(message.data()), offset, translated));
  }
  Regex regex;
  regex.code_.reset(code, pcre2_code_free);
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without it, the interpreter gives the same
  return regex;
}

RegexScratch::RegexScratch()
    : context_(allocated(pcre2_match_context_create(nullptr)), pcre2_match_context_free),
      data_(allocated(pcre2_match_data_create(1, nullptr)), pcre2_match_data_free) {
  pcre2_set_heap_limit(context_.get(), kHeapLimitKiB);
}

RegexMatches::RegexMatches(const Regex& regex, RegexScratch& scratch, std::string_view text)
    : regex_(regex), scratch_(scratch), text_(text), last_end_(text.npos) {
  if (has_changed_codes(text)) {
    replaced_ = with_stand_ins(text);
    text_ = replaced_;
  }
  pcre2_set_match_limit(scratch_.context_.get(), match_limit(text.size()));
}

bool RegexMatches::next(std::size_t& begin, std::size_t& end) {
  while (at_ <= text_.size()) {
    const auto match = [&](std::uint32_t options) {
      return pcre2_match(regex_.code_.get(), reinterpret_cast<PCRE2_SPTR>(text_.data()),
                         text_.size(), at_, PCRE2_NO_UTF_CHECK | options, scratch_.data_.get(),
                         scratch_.context_.get());
    };
    int status = match(0);
    if (status == PCRE2_ERROR_JIT_STACKLIMIT) status = match(PCRE2_NO_JIT);
    if (status == PCRE2_ERROR_NOMATCH) break;
    if (status < 0) {
      failed_ = true;
      break;
    }
    const std::size_t* const found = pcre2_get_ovector_pointer(scratch_.data_.get());
    begin = found[0];
    end = std::max(found[0], found[1]);
    const bool empty_behind_last = begin == end && end == last_end_;
    at_ = begin == end ? end + (end < text_.size() ? unit_bytes(text_[end]) : 1) : end;
    if (empty_behind_last) continue;
    last_end_ = end;
    return true;
  }
  at_ = text_.size() + 1;
  return false;
}

}  // namespace octavo::text

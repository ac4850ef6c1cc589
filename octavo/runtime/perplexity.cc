#include "octavo/runtime/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "octavo/base/float_mode.h"
#include "octavo/kernels/select.h"

namespace octavo::runtime {
namespace {

// Rows whose logits are in memory at once.
constexpr std::size_t kRowsAtOnce = 64;

// -log softmax(logits)[target] of each row.
void losses(const Context& context, const nn::Value& logits, const std::int32_t* targets,
            double* loss) {
  const kernels::TransformerKernels& kernels =
      kernels::transformer_kernels(*kernels::selected_isa());
  context.pool->run(static_cast<int>(logits.rows), [&](int row) {
    const DefaultFloatMode mode;
    const auto i = static_cast<std::size_t>(row);
    const float* x = logits.row(i);
    const float largest = kernels.row_max(x, 0, logits.cols);
    const float sum = kernels.sum_exp(x, logits.cols, kernels::kLog2e, largest);
    // logl has one implementation for all x86 processors.
    loss[i] = static_cast<double>(std::log(static_cast<long double>(sum)) + largest -
                                  x[static_cast<std::size_t>(targets[i])]);
  });
}

}  // namespace

Result<Perplexity> perplexity(Engine& engine, std::span<const std::int32_t> tokens,
                              const PerplexityOptions& options) {
  const std::size_t before = options.first_token ? 1 : 0;
  if (options.context < 2 || tokens.size() + before < 2) {
    return fail(ErrorCode::bad_value,
                fmt::format("a text of {} tokens in windows of {}: at least 2 are needed",
                            tokens.size(), options.context));
  }
  OCTAVO_CHECK(engine.check_tokens(tokens));
  if (options.first_token) OCTAVO_CHECK(engine.check_tokens(std::span(&*options.first_token, 1)));
  const Context& context =
      engine.options().context != nullptr ? *engine.options().context : default_context();
  Perplexity result;
  const std::size_t step = options.context - before;
  std::vector<std::int32_t> window;
  std::vector<double> loss(kRowsAtOnce);
  Sequence sequence = engine.sequence(std::min(options.context, tokens.size() + before));
  for (std::size_t at = 0; at < tokens.size(); at += step) {
    const std::size_t count = std::min(step, tokens.size() - at);
    window.assign(before, options.first_token.value_or(0));
    window.insert(window.end(), tokens.begin() + static_cast<std::ptrdiff_t>(at),
                  tokens.begin() + static_cast<std::ptrdiff_t>(at + count));
    sequence.length = 0;
    const std::size_t chunk = engine.options().prompt_chunk;
    for (std::size_t first = 0; first < window.size(); first += chunk) {
      if (options.interrupt != nullptr && options.interrupt->load())
        return fail(ErrorCode::interrupted, "stopped");
      const std::size_t rows = std::min(chunk, window.size() - first);
      const Feed feed{&sequence, std::span<const std::int32_t>(window).subspan(first, rows)};
      const nn::Value hidden = engine.hidden_states(std::span(&feed, 1));
      // The last token of the window predicts nothing.
      const std::size_t predicting = std::min(rows, window.size() - 1 - first);
      for (std::size_t row = 0; row < predicting; row += kRowsAtOnce) {
        const std::size_t n = std::min(kRowsAtOnce, predicting - row);
        const nn::Value logits = engine.logits({hidden.row(row), n, hidden.cols});
        losses(context, logits, window.data() + first + row + 1, loss.data());
        for (std::size_t i = 0; i < n; ++i) result.negative_log_likelihood += loss[i];
      }
      result.predicted += predicting;
    }
    if (options.on_progress) options.on_progress(at + count, tokens.size());
  }
  if (!std::isfinite(result.negative_log_likelihood)) {
    return fail(ErrorCode::bad_model,
                "logits are no finite numbers; `octavo verify --full` looks for what is broken");
  }
  result.perplexity =
      std::exp(result.negative_log_likelihood / static_cast<double>(result.predicted));
  return result;
}

}  // namespace octavo::runtime

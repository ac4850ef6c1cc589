// The parts of a tokenizer.json, each into its own steps.
#pragma once

#include "octavo/text/json_node_internal.h"
#include "octavo/text/steps_internal.h"

namespace octavo::text {

Result<Bpe> read_bpe(const JsonNode& document);
Result<void> read_normalizer(const JsonNode& document, TokenizerData& data);
Result<void> read_pre_tokenizer(const JsonNode& document, TokenizerData& data);
Result<void> read_post_processor(const JsonNode& document, TokenizerData& data);
Result<void> read_decoder(const JsonNode& document, TokenizerData& data);
// After model and normalizer.
Result<void> read_added_tokens(const JsonNode& document, TokenizerData& data);

}  // namespace octavo::text

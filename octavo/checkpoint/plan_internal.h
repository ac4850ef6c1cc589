// What both plans do.
#pragma once

#include "octavo/checkpoint/conversion.h"

namespace octavo {

// Side files that would contradict the result.
void leave_out_stale_files(const Checkpoint& checkpoint, ConversionPlan& plan);

// Where the skip list of the source's config is wrong: one warning of a kind. bad_model: it cannot
// be read.
Result<std::vector<std::string>> skip_list_warnings(const Checkpoint& checkpoint,
                                                    const Pairing& pairing);

}  // namespace octavo

// The parts of verify that look at values.
#pragma once

#include "octavo/checkpoint/verify.h"

namespace octavo {

// Scales of weights and activations: NaN, infinite, zero, negative, and with scale_fmt ue8m0 no
// powers of two.
void verify_scales(const Checkpoint& checkpoint, const Pairing& pairing, int threads,
                   VerifyReport& report);

// Those are the values that verify_scales() looks at.
bool holds_scale_values(const Checkpoint& checkpoint, const Pairing& pairing, std::size_t tensor);

// Every element of every other tensor; what lies beyond a file's end is passed over.
void verify_elements(const Checkpoint& checkpoint, const Pairing& pairing,
                     const VerifyOptions& options, VerifyReport& report);

// "DIR/FILE" of a tensor.
std::string file_of(const Checkpoint& checkpoint, const CheckpointTensor& tensor);

// A tensor whose file shrank, or whose device failed, while it was read.
Defect read_defect(const Checkpoint& checkpoint, const CheckpointTensor& tensor,
                   const Error& error);

// How many of a tensor's bytes are in its file.
std::uint64_t bytes_there(const Checkpoint& checkpoint, const CheckpointTensor& tensor);

}  // namespace octavo

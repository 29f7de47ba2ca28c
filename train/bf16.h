// bfloat16 on CPUs that say they have AMX and do not quite.
#pragma once

namespace penstock::train {

/// Whether oneDNN may use AMX; where not, its instruction set is capped below it (ONEDNN_MAX_CPU_ISA), since
/// its kernels would end the process with an illegal instruction. oneDNN reads the variable once, at its
/// first use, which any convolution may be: so a program that links this asks before main(). Any thread,
/// cheap when called again.
bool prepare_bf16();

}  // namespace penstock::train

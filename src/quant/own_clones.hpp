// CAIRN_QUANT_CLONES compiles a function twice, for any x86-64 processor and for those with AVX2, and picks one when the
// program starts. The results are the same bits: AVX2 without FMA has the same operations, on more values at once.
#pragma once

// The sanitizers are not yet up when the choice is made.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define CAIRN_QUANT_CLONES __attribute__((target_clones("default", "avx2")))
#else
#define CAIRN_QUANT_CLONES
#endif

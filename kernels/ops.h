// The op table: one argument struct per op and one table of functions per backend.
//
// Letters: T tokens (rows of the flat batch), C model width, H query heads, Hkv key/value heads, D head size, F ffn
// width, V vocabulary. `t` is the type of the activations (f32, bf16 or f16). Reductions, softmax and norms are
// computed in f32. Weights of norms, biases and embeddings are read from the f32 masters; gradients of weights are f32.
// Every function: pointers may be unaligned (beyond the element size), sizes may be 0, nothing is allocated in steady
// state, the result does not depend on the number of threads unless the op says so.
#pragma once
#include <cstdint>

#include "kernels/dtype.h"
#include "kernels/stream.h"

namespace rw {

enum class Trans : uint8_t { no, yes };
enum class Write : uint8_t { overwrite, accumulate };

// ---- matrix product -------------------------------------------------------------------------------------------------

// c(m,n) = op(a)(m,k) * op(b)(k,n) [+ bias(n)] [+ c].
// a is stored (m,k) with row stride lda, or (k,m) when a_trans is yes. b is stored (k,n) with row stride ldb, or (n,k)
// when b_trans is yes; or it is `b_packed`, made by gemm_pack for the same (n, k, t), and then b, ldb, b_trans are
// unused. A stride of 0 means tight. Accumulation is in f32. Rows of c do not depend on m when b is packed: on the CPU
// always, on a GPU with fixed_order, where products of other sizes than a batch's may be slower for it.
//
// With `gelu`, gelu(c) is left there, the tanh form. With `gelu_slope_of`, an x, c = op(a) * op(b) * gelu'(x): a
// gradient on its way back through gelu(x). Of the two one at most; c is tight and overwritten; a slope has no bias.
// The CPU's bits are those of the product followed by gelu_fwd or gelu_bwd; a GPU may take GELU of the sums before they
// are rounded to ct.
struct Gemm {
  void* c;
  const void* a;
  const void* b = nullptr;
  const void* b_packed = nullptr;
  const float* bias = nullptr;          // (n); a GPU rounds it to ct before it is added
  void* gelu = nullptr;                 // (m,n) of ct; may be c, which then does not keep the product
  const void* gelu_slope_of = nullptr;  // (m,n) of ct, not c
  int64_t m, n, k;
  int64_t lda = 0, ldb = 0, ldc = 0;  // in elements
  Trans a_trans = Trans::no, b_trans = Trans::no;
  DType t;                         // type of a and b: f32, bf16 or f16
  DType ct;                        // type of c: f32 or t
  Write write = Write::overwrite;  // accumulate needs ct f32
  bool fixed_order = false;        // of the sums over k, whatever m is
  void* workspace = nullptr;       // gemm_workspace bytes, 64-byte aligned
};

// Packs op(b)(k,n) for Gemm::b_packed, converting src_t, which is f32 or t, to t.
struct GemmPack {
  void* packed;  // packed_bytes bytes, 64-byte aligned
  const void* b;
  int64_t n, k;
  int64_t ldb = 0;
  Trans b_trans = Trans::no;  // as in Gemm: yes means b is stored (n,k), the layout of a checkpoint's weight
  DType src_t, t;
};

// Weights of 8 or 4 bits for products with few rows, which are bound by reading them. A row of b is cut into groups of
// `group` elements with one scale each, symmetric: b ~ scale * q, q whole numbers in [-127,127] (int8) or [-8,7]
// (int4). int8: the scale is bf16, group a multiple of 64 up to 512. int4: four groups share a bf16 scale and have 4
// bits each of their own (scale = shared * 0..15), group a multiple of 32 up to 128.
enum class QuantBits : uint8_t { int8, int4 };
constexpr int64_t default_quant_group(QuantBits bits) { return bits == QuantBits::int8 ? 128 : 32; }
struct QuantPack {
  void* packed;    // quant_packed_bytes bytes, 64-byte aligned
  const float* b;  // (n,k), the layout of a checkpoint's weight
  int64_t n, k;
  int64_t ldb = 0;  // in elements; 0 = k
  QuantBits bits;
  int64_t group;
};
// c(m,n) = a(m,k) * b^T [+ bias(n)] with the b that quant_pack was given, for the same (n, k, bits, group). Rows of a
// are rounded to 16 bits by groups (int8: those of b; int4: four of b) of their own scale; whole numbers are multiplied
// exactly, and the groups' sums added in f32 in rising k: rows of c do not depend on m.
struct QuantGemm {
  void* c;
  const void* a;
  const void* b_packed;
  const float* bias = nullptr;  // (n)
  int64_t m, n, k;
  int64_t lda = 0, ldc = 0;  // in elements; 0 = tight
  QuantBits bits;
  int64_t group;
  DType t;                    // type of a: f32, bf16 or f16
  DType ct;                   // type of c: f32 or t
  void* workspace = nullptr;  // quant_gemm_workspace bytes, 64-byte aligned
};
// b(n,k) as f32, as quant_gemm multiplies with it: for tests and for looking at what was lost.
struct QuantUnpack {
  float* b;  // (n,k), row stride ldb
  const void* packed;
  int64_t n, k;
  int64_t ldb = 0;
  QuantBits bits;
  int64_t group;
};

// d_bias(n) (+)= column sums of d_y(rows,n).
struct BiasBwd {
  float* d_bias;
  const void* d_y;
  int64_t rows, n;
  int64_t ld = 0;
  DType t;
  Write write;
};

// ---- norms ----------------------------------------------------------------------------------------------------------

// sum = x + add (when add is given; sum may alias x or add); y = norm(sum) * w [+ b]. Without add, x itself is normed.
// RMSNorm (Zhang & Sennrich 2019) when `b` and `mean` are null and kind is rms; LayerNorm (Ba et al. 2016) otherwise.
enum class NormKind : uint8_t { rms, layer };
struct NormFwd {
  void* y;                    // (rows,c)
  float* mean = nullptr;      // (rows), layer only
  float* rstd;                // (rows)
  const void* x;              // (rows,c)
  const void* add = nullptr;  // (rows,c)
  void* sum = nullptr;        // (rows,c), required with add
  const float* w;             // (c)
  const float* b = nullptr;   // (c), layer only
  int64_t rows, c;
  float eps;
  NormKind kind;
  DType t;
};

// d_x = gradient through the norm [+ d_res]; d_w, d_b (f32) are written when not null, d_x likewise: the two halves of
// the backward may be called apart. x is the normed input (NormFwd::sum when add was given).
struct NormBwd {
  void* d_x = nullptr;          // (rows,c); may alias d_res or d_y
  float* d_w = nullptr;         // (c)
  float* d_b = nullptr;         // (c), layer only
  const void* d_y;              // (rows,c)
  const void* x;                // (rows,c)
  const void* d_res = nullptr;  // (rows,c): gradient arriving past the norm along the residual stream
  const float* mean = nullptr;  // (rows), layer only
  const float* rstd;            // (rows)
  const float* w;               // (c)
  int64_t rows, c;
  NormKind kind;
  DType t;
  Write write = Write::accumulate;  // of d_w and d_b
};

// ---- position -------------------------------------------------------------------------------------------------------

// Rotary embedding in place (Su et al. 2021), the half-split pairing of Hugging Face: (x[i], x[i + D/2]) is a pair.
// inverse = rotate by the negative angle: the backward.
enum class Direction : uint8_t { forward, inverse };
struct Rope {
  void* x;             // (rows, heads, d) with row stride ld
  const int32_t* pos;  // (rows)
  const float* cos;    // (max_pos, d/2)
  const float* sin;    // (max_pos, d/2)
  int64_t rows, heads, d;
  int64_t ld = 0;  // in elements; 0 = heads*d
  Direction direction = Direction::forward;
  DType t;
};

// ---- attention ------------------------------------------------------------------------------------------------------

// Causal attention over packed sequences, blockwise (Dao et al. 2022): T x T is never stored. Sequence s holds the rows
// cu_seqlens[s] .. cu_seqlens[s+1]. Query head h reads key/value head h / (heads/kv_heads).
struct AttentionFwd {
  void* o;                // (T, H, D), row stride ldo
  float* lse;             // (T, H) log-sum-exp of the scaled scores
  const void *q, *k, *v;  // (T,H,D), (T,Hkv,D), (T,Hkv,D); row strides ldq, ldkv, ldkv
  int64_t ldo = 0, ldq = 0, ldkv = 0;
  const int32_t* cu_seqlens;  // (n_seq+1)
  int64_t n_seq, heads, kv_heads, d;
  float scale;
  DType t;
  void* workspace = nullptr;  // attention_workspace bytes
};
struct AttentionBwd {
  void *d_q, *d_k, *d_v;  // as q, k, v, overwritten; row strides ldq, ldkv, ldkv
  const void* d_o;        // (T,H,D), row stride ldo
  const void *q, *k, *v, *o;
  const float* lse;  // (T,H)
  int64_t ldo = 0, ldq = 0, ldkv = 0;
  const int32_t* cu_seqlens;
  int64_t n_seq, heads, kv_heads, d;
  float scale;
  DType t;
  void* workspace = nullptr;  // attention_workspace bytes
};

// Keys and values live in pages of page_tokens tokens: (n_pages, page_tokens, Hkv, D) each for K and V.
// KvWrite stores row r of k and v at slot[r] = page * page_tokens + offset; a negative slot is skipped. Pages of i8
// hold whole numbers q in [-127,127] with a scale for each token and kv head: x ~ scale * q, scale = max|x| / 127.
struct KvWrite {
  void *k_pages, *v_pages;
  const void *k, *v;    // (rows, Hkv, D), row stride ld
  const int64_t* slot;  // (rows)
  int64_t rows, kv_heads, d;
  int64_t ld = 0;
  DType t;                                         // of k and v: f32, bf16 or f16
  DType kv_t = t;                                  // of the pages: f32, bf16, f16 or i8
  float *k_scales = nullptr, *v_scales = nullptr;  // (n_pages, page_tokens, Hkv), with i8
};
// Attention of a flat batch over paged keys and values. Sequence s has queries q_start[s]..q_start[s+1]; its context
// (these included) is context_len[s] tokens, found through page_table[s*max_pages + i]. Query i of n attends to
// positions <= context_len - n + i. The result of a row does not depend on its batch mates; with fixed_order it depends
// neither on how its prefill was cut into chunks nor on the threads, while without many queries of a sequence may go
// through its context together, in blocks, which is faster.
struct PagedAttention {
  void* o;        // (T,H,D), row stride ldo
  const void* q;  // (T,H,D), row stride ldq
  const void *k_pages, *v_pages;
  const int32_t* page_table;   // (n_seq, max_pages)
  const int32_t* q_start;      // (n_seq+1)
  const int32_t* context_len;  // (n_seq)
  int64_t n_seq, max_pages, page_tokens;
  int64_t heads, kv_heads, d;
  int64_t ldo = 0, ldq = 0;
  float scale;
  DType t;                                               // of q and o: f32, bf16 or f16
  DType kv_t = t;                                        // of the pages: f32, bf16, f16 or i8
  const float *k_scales = nullptr, *v_scales = nullptr;  // (n_pages, page_tokens, Hkv), with i8
  bool fixed_order = false;
  void* workspace = nullptr;  // paged_attention_workspace bytes; null: works without, slower
};

// ---- activations ----------------------------------------------------------------------------------------------------

// y = gelu(x), the tanh form of GPT-2 (y may alias x). d_x = d_y * gelu'(x) (d_x may alias d_y).
struct GeluFwd {
  void* y;
  const void* x;
  int64_t n;
  DType t;
};
struct GeluBwd {
  void* d_x;
  const void* d_y;
  const void* x;
  int64_t n;
  DType t;
};
// y(rows,f) = silu(gate) * up, with gate = x[:, :f] and up = x[:, f:] of x(rows, 2f). (Shazeer 2020)
struct SwigluFwd {
  void* y;
  const void* x;
  int64_t rows, f;
  DType t;
};
struct SwigluBwd {
  void* d_x;
  const void* d_y;
  const void* x;
  int64_t rows, f;
  DType t;
};

// ---- embedding, head, loss ------------------------------------------------------------------------------------------

// x(rows,c) = table[id - id_begin] [+ pos_table[pos]], for the ids of [id_begin, id_end): those that this table, a
// range of the vocabulary's rows, holds. The others give zeros [+ pos_table[pos]]. ids must be in the vocabulary
// (checked at the door by the caller).
struct EmbeddingFwd {
  void* x;
  const void* table;                 // (V,c) of table_t
  const float* pos_table = nullptr;  // (max_pos,c)
  const int32_t* id;                 // (rows)
  const int32_t* pos = nullptr;      // (rows), required with pos_table
  int64_t rows, c;
  int64_t id_begin = 0, id_end = INT64_MAX;
  DType t;
  DType table_t = DType::f32;  // or bf16, f16
};
// d_table[id - id_begin] += d_x for the ids of [id_begin, id_end), d_pos_table[pos] += d_x for all (either may be
// null); always accumulates, in row order.
struct EmbeddingBwd {
  float* d_table;
  float* d_pos_table = nullptr;
  const void* d_x;
  const int32_t* id;
  const int32_t* pos = nullptr;
  int64_t rows, c;
  int64_t id_begin = 0, id_end = INT64_MAX;
  DType t;
};
// Cross-entropy over a vocabulary whose columns may be shared among ranks, in two halves. Each rank makes its part from
// its columns [v_begin, v_begin + v): part[r] = {max over its logits, sum of exp(logit - max), the target's logit or
// -infinity when another rank has it}. A negative target is ignored.
struct CrossEntropyPart {
  float* part;            // (rows, 3)
  const void* logits;     // (rows, v), row stride ld
  const int32_t* target;  // (rows), ids of the whole vocabulary
  int64_t rows, v;
  int64_t v_begin = 0;
  int64_t ld = 0;
  DType t;
};
// From the parts of all ranks, combined in their order: loss[r] = -log softmax(logits[r])[target[r]], 0 where the
// target is negative. When d_scale != 0, this rank's logits are overwritten by (softmax - onehot) * d_scale, in place,
// in the type of logits (0 where the target is negative).
struct CrossEntropyFinish {
  float* loss;         // (rows)
  void* logits;        // (rows, v), row stride ld
  const float* parts;  // (n_parts, rows, 3)
  int64_t n_parts;
  const int32_t* target;  // (rows)
  int64_t rows, v;
  int64_t v_begin = 0;
  int64_t ld = 0;
  float d_scale;
  DType t;
};

// ---- optimizer, elementwise -----------------------------------------------------------------------------------------

// Decoupled weight decay (Loshchilov & Hutter 2019), as torch.optim.AdamW:
// g *= grad_scale; p *= 1 - lr*wd; m = b1*m + (1-b1)*g; v = b2*v + (1-b2)*g*g;
// p -= lr / (1-b1^step) * m / (sqrt(v / (1-b2^step)) + eps).
struct AdamW {
  float *p, *m, *v;
  const float* g;
  int64_t n;
  float lr, beta1, beta2, eps, weight_decay, grad_scale;
  int64_t step;  // 1 for the first
};
// partial[i] = sum of squares in f64 of the i-th block of `block` elements of x (the last may be short).
struct SumSquares {
  double* partial;
  const float* x;
  int64_t n, block;
};
// y = x converted.
struct Cast {
  void* y;
  const void* x;
  int64_t n;
  DType yt, xt;
};
// y = a + b (y may alias either).
struct Add {
  void* y;
  const void* a;
  const void* b;
  int64_t n;
  DType t;
};
// y *= s.
struct Scale {
  void* y;
  float s;
  int64_t n;
  DType t;
};
// y = 0.
struct Zero {
  void* y;
  int64_t bytes;
};
// host = device: the only way the host looks at what ops computed. On the meta table every element read is 1.
struct Read {
  void* host;
  const void* device;
  int64_t n;
  DType t;  // f32, f64, i64
};
// device = host: the only way what the host made (ids, positions, page tables) gets to ops that run elsewhere. The host
// leaves its bytes as they are until a Read on the same stream has returned. Where both are one address, as on the CPU,
// nothing is done.
struct Upload {
  void* device;
  const void* host;
  int64_t bytes;
};

// ---- sampling -------------------------------------------------------------------------------------------------------

// What decides on the token that follows a row of logits, so that whoever draws reads a few numbers and not the row. A
// token's weight is exp((z - max) * inv_t): 1 for the largest logit, 0 for -inf, which is a mask. What is not asked for
// is left as it was.
struct SampleAsk {
  double share = -1;    // in [0,1): a token is drawn there in the sum of the weights; negative: none is
  float inv_t = 0;      // 1 / temperature; 0: no weights are asked for
  int32_t row = 0;      // of logits
  int32_t n_best = 0;   // largest logits asked for
  int32_t column = -1;  // whose logit is asked for; negative: none
  int32_t raw_sum = 0;  // 1: the sum of exp(z - max) is asked for
};
struct SampleFacts {
  double sum, raw_sum;  // of the weights, of exp(z - max)
  float max;            // -inf where all columns are masked or there are none: then all but finite is left as it was
  int32_t arg;          // the lowest column that has it
  int32_t finite;       // 0: NaN or +inf is among the logits; then all else is left as it was
  int32_t drawn;        // the column where the weights, added by rising column, exceed share * sum
  float drawn_z, column_z;
};
struct SampleScan {
  SampleFacts* facts;    // (n)
  float* best_z;         // (n, most_best): the n_best largest logits, falling; of equals the lower columns first
  int32_t* best_column;  // (n, most_best); -1 where there are fewer columns
  const float* logits;   // (rows, v), row stride ld
  const SampleAsk* ask;  // (n)
  int64_t n, v, most_best;
  int64_t ld = 0;  // in elements; 0 = v
};
constexpr int64_t kMostSampleBest = 256;  // most_best at most

// ---- the table ------------------------------------------------------------------------------------------------------

struct Ops {
  const char* name;  // "cpu/avx512_bf16", ...
  void (*gemm)(const Gemm&, Stream);
  void (*gemm_pack)(const GemmPack&, Stream);
  int64_t (*gemm_workspace)(const Gemm&, Stream);
  int64_t (*packed_bytes)(const GemmPack&, Stream);  // 0, of b_trans no: b in t serves as it is
  void (*quant_pack)(const QuantPack&, Stream);
  void (*quant_unpack)(const QuantUnpack&, Stream);
  void (*quant_gemm)(const QuantGemm&, Stream);
  int64_t (*quant_packed_bytes)(const QuantPack&, Stream);
  int64_t (*quant_gemm_workspace)(const QuantGemm&, Stream);
  void (*bias_bwd)(const BiasBwd&, Stream);
  void (*norm_fwd)(const NormFwd&, Stream);
  void (*norm_bwd)(const NormBwd&, Stream);
  void (*rope)(const Rope&, Stream);
  void (*attention_fwd)(const AttentionFwd&, Stream);
  void (*attention_bwd)(const AttentionBwd&, Stream);
  int64_t (*attention_workspace)(const AttentionBwd&, Stream);  // enough for the forward too
  void (*kv_write)(const KvWrite&, Stream);
  void (*paged_attention)(const PagedAttention&, Stream);
  int64_t (*paged_attention_workspace)(const PagedAttention&, Stream);  // of heads, d and types, for any batch
  void (*gelu_fwd)(const GeluFwd&, Stream);
  void (*gelu_bwd)(const GeluBwd&, Stream);
  void (*swiglu_fwd)(const SwigluFwd&, Stream);
  void (*swiglu_bwd)(const SwigluBwd&, Stream);
  void (*embedding_fwd)(const EmbeddingFwd&, Stream);
  void (*embedding_bwd)(const EmbeddingBwd&, Stream);
  void (*cross_entropy_part)(const CrossEntropyPart&, Stream);
  void (*cross_entropy_finish)(const CrossEntropyFinish&, Stream);
  void (*sample_scan)(const SampleScan&, Stream);
  void (*adamw)(const AdamW&, Stream);
  void (*sum_squares)(const SumSquares&, Stream);
  void (*cast)(const Cast&, Stream);
  void (*add)(const Add&, Stream);
  void (*scale)(const Scale&, Stream);
  void (*zero)(const Zero&, Stream);
  void (*read)(const Read&, Stream);
  void (*upload)(const Upload&, Stream);
};

// The table for this CPU: the best of scalar, avx2, avx512, avx512_bf16 that cpuid allows, or the one named by `isa`
// (tests, RANKWRIGHT_ISA); an unknown or unsupported name throws std::invalid_argument naming the ones this CPU has.
const Ops& cpu_ops(const char* isa = nullptr);

// Peak of this machine's fused-multiply-add (f32, f16) or dot-product/tile (bf16) instructions in registers, FLOP/s,
// over `stream.threads` threads; runs about `seconds`. `*instruction` names what ran, e.g. "avx512 vfmadd", "amx
// tdpbf16ps".
double measure_peak_flops(DType t, Stream stream, double seconds, const char** instruction);

// ---- cost: the only place that prices an op -------------------------------------------------------------------------

// FLOPs (a multiply-add is 2), bytes read and written from memory if every operand is touched once.
struct Cost {
  double flops = 0, bytes_read = 0, bytes_written = 0;
};
Cost cost(const Gemm&);
Cost cost(const GemmPack&);
Cost cost(const QuantPack&);
Cost cost(const QuantUnpack&);
Cost cost(const QuantGemm&);
Cost cost(const BiasBwd&);
Cost cost(const NormFwd&);
Cost cost(const NormBwd&);
Cost cost(const Rope&);
Cost cost(const AttentionFwd&);  // reads cu_seqlens; counts the causal half (s^2/2 per sequence)
Cost cost(const AttentionBwd&);
Cost cost(const KvWrite&);
Cost cost(const PagedAttention&);
Cost cost(const GeluFwd&);
Cost cost(const GeluBwd&);
Cost cost(const SwigluFwd&);
Cost cost(const SwigluBwd&);
Cost cost(const EmbeddingFwd&);
Cost cost(const EmbeddingBwd&);
Cost cost(const CrossEntropyPart&);
Cost cost(const CrossEntropyFinish&);
Cost cost(const SampleScan&);  // of a row: one pass over its logits
Cost cost(const AdamW&);
Cost cost(const SumSquares&);
Cost cost(const Cast&);
Cost cost(const Add&);
Cost cost(const Scale&);
Cost cost(const Zero&);
Cost cost(const Read&);
Cost cost(const Upload&);

}  // namespace rw

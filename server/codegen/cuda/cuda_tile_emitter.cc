#include "server/codegen/cuda/cuda_tile_emitter.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/codegen/prelude.h"
#include "server/codegen/tile_text.h"

namespace fuseline::codegen {
namespace {

// Instructions of an element of the result that are written out for each of a thread's sums.
constexpr size_t kMostUnrolledInstrs = 16;

class CudaTileEmitter {
 public:
  explicit CudaTileEmitter(const ScheduledKernel& kernel)
      : k_(kernel),
        plan_(*kernel.tile),
        text_(kernel, kernel.wide_index ? "long long" : "int"),
        out_(text_.out()),
        dtype_(kernel.body.reductions[0].type),
        type_(ComputeTypeName(dtype_)),
        chunk_(std::min({kTileChunk, plan_.thread_m, plan_.thread_n})) {}

  std::string Emit() {
    Signature();
    const std::string index = text_.index_type();
    const std::string vec = absl::StrCat(text_.printer().Function("fl_vec"), "<", type_, ", ", chunk_, ">");
    const std::string shared = text_.printer().Function("FL_SHARED");
    const std::string barrier = absl::StrCat(text_.printer().Function("fl_barrier"), "();");
    // A chunk more than the tile has, so that steps begin in other banks.
    out_.Line(absl::StrCat(shared, " ", vec, " a_tile[", plan_.tile_k, "][", plan_.tile_m / chunk_ + 1, "];"));
    out_.Line(absl::StrCat(shared, " ", vec, " b_tile[", plan_.tile_k, "][", plan_.tile_n / chunk_ + 1, "];"));
    out_.Line(absl::StrCat("const int thread = ", text_.printer().Function("fl_thread"), "();"));
    out_.Line(absl::StrCat("const ", index, " block = (", index, ")", text_.printer().Function("fl_block"), "();"));
    const int64_t tiles = plan_.tiles_m() * plan_.tiles_n();
    if (!plan_.batch_vars.empty()) {
      out_.Line(absl::StrCat("const ", index, " batch = block / ", tiles, ";"));
      text_.Decode("batch", plan_.batch_vars);
    }
    out_.Line(absl::StrCat("const ", index, " m0 = block % ", tiles, " / ", plan_.tiles_n(), " * ", plan_.tile_m,
                           ", n0 = block % ", plan_.tiles_n(), " * ", plan_.tile_n, ";"));
    const int32_t across = plan_.tile_n / plan_.thread_n;
    out_.Line(absl::StrCat("const int x = thread % ", across, ", y = thread / ", across, ";"));
    out_.Line(absl::StrCat(type_, " sums[", plan_.thread_m, "][", plan_.thread_n, "];"));
    OpenSums();
    out_.Line("sums[i][j] = 0;");
    CloseSums();
    out_.Open(absl::StrCat("for (", index, " k0 = 0; k0 < ", plan_.reduced, "; k0 += ", plan_.tile_k, ")"));
    out_.Line(barrier);
    Fill(plan_.a, "a_tile", "m", plan_.tile_m);
    Fill(plan_.b, "b_tile", "n", plan_.tile_n);
    out_.Line(barrier);
    Multiply(vec);
    out_.Close();
    Store();
    out_.Close();
    return absl::StrCat(CudaPrelude().Render(text_.printer().needed()), "\n", out_.text());
  }

 private:
  void Signature() {
    std::vector<std::string> args;
    for (const BodyParam& p : k_.body.params) {
      if (IsHalf(p.dtype) || IsF8(p.dtype)) text_.printer().Function(StorageTypeName(p.dtype));
      args.push_back(absl::StrCat(p.written ? "" : "const ", StorageTypeName(p.dtype), "* __restrict__ ", p.name));
    }
    text_.printer().Function("FL_KERNEL");
    out_.Line(absl::StrCat("// ", k_.description, "; ", text_.Loops()));
    out_.Open(absl::StrCat("FL_KERNEL(", k_.dims.block[0], ") ", k_.name, "(", absl::StrJoin(args, ", "), ")"));
  }

  // Neighbouring threads take neighbours in memory. Past the end of the factor or of the sum there are zeros.
  void Fill(const TileFactor& factor, const std::string& tile, const std::string& position, int32_t extent) {
    const std::string index = text_.index_type();
    out_.Open(absl::StrCat("for (int e = thread; e < ", extent * plan_.tile_k, "; e += ", kTileThreads, ")"));
    if (factor.reduced_inner) {
      out_.Line(absl::StrCat("const int s = e % ", plan_.tile_k, ", i = e / ", plan_.tile_k, ";"));
    } else {
      out_.Line(absl::StrCat("const int i = e % ", extent, ", s = e / ", extent, ";"));
    }
    out_.Line(absl::StrCat("const ", index, " ", position, " = ", position, "0 + i, k = k0 + s;"));
    out_.Line(absl::StrCat(type_, " value = 0;"));
    std::string inside;
    if (factor.extent % extent != 0) inside = absl::StrCat(position, " < ", factor.extent);
    if (plan_.reduced % plan_.tile_k != 0)
      absl::StrAppend(&inside, inside.empty() ? "" : " && ", "k < ", plan_.reduced);
    out_.Open(inside.empty() ? "" : absl::StrCat("if (", inside, ")"));
    text_.Decode(position, factor.vars);
    text_.Decode("k", plan_.reduced_vars);
    out_.Line(absl::StrCat("value = ", text_.Factor(factor), ";"));
    out_.Close();
    out_.Line(absl::StrCat(tile, "[s][i / ", chunk_, "].lane[i % ", chunk_, "] = value;"));
    out_.Close();
  }

  void OpenSums() {
    out_.Directive("#pragma unroll");
    out_.Open(absl::StrCat("for (int i = 0; i < ", plan_.thread_m, "; ++i)"));
    out_.Directive("#pragma unroll");
    out_.Open(absl::StrCat("for (int j = 0; j < ", plan_.thread_n, "; ++j)"));
  }
  void CloseSums() {
    out_.Close();
    out_.Close();
  }

  // A thread's rows lie in chunks, each as far from the next as all threads' chunks reach.
  void Multiply(const std::string& vec) {
    const int32_t across = plan_.tile_n / plan_.thread_n, down = plan_.tile_m / plan_.thread_m;
    out_.Directive("#pragma unroll");
    out_.Open(absl::StrCat("for (int s = 0; s < ", plan_.tile_k, "; ++s)"));
    out_.Line(absl::StrCat(vec, " a_part[", plan_.thread_m / chunk_, "], b_part[", plan_.thread_n / chunk_, "];"));
    out_.Directive("#pragma unroll");
    out_.Line(absl::StrCat("for (int i = 0; i < ", plan_.thread_m / chunk_, "; ++i) a_part[i] = a_tile[s][i * ", down,
                           " + y];"));
    out_.Directive("#pragma unroll");
    out_.Line(absl::StrCat("for (int j = 0; j < ", plan_.thread_n / chunk_, "; ++j) b_part[j] = b_tile[s][j * ", across,
                           " + x];"));
    OpenSums();
    const std::string a = absl::StrCat("a_part[i / ", chunk_, "].lane[i % ", chunk_, "]");
    const std::string b = absl::StrCat("b_part[j / ", chunk_, "].lane[j % ", chunk_, "]");
    if (IsFloat(dtype_)) {
      out_.Line(
          absl::StrCat("sums[i][j] = ", dtype_ == DType::kF64 ? "fma" : "fmaf", "(", a, ", ", b, ", sums[i][j]);"));
    } else {
      const std::string suffix(DTypeName(dtype_));
      out_.Line(absl::StrCat("sums[i][j] = ", text_.printer().Function("fl_add_" + suffix), "(sums[i][j], ",
                             text_.printer().Function("fl_mul_" + suffix), "(", a, ", ", b, "));"));
    }
    CloseSums();
    out_.Close();
  }

  // A long text for each element is written once, and not for each of the thread's sums. Those are copied for it, since
  // an array with a position known at run time only is no longer in registers.
  void Store() {
    const bool once = plan_.row_instrs.size() > kMostUnrolledInstrs;
    std::string sum = "sums[i][j]";
    if (once) {
      const int32_t count = plan_.thread_m * plan_.thread_n;
      out_.Line(absl::StrCat(type_, " results[", count, "];"));
      OpenSums();
      out_.Line(absl::StrCat("results[i * ", plan_.thread_n, " + j] = sums[i][j];"));
      CloseSums();
      out_.Directive("#pragma unroll 1");
      out_.Open(absl::StrCat("for (int e = 0; e < ", count, "; ++e)"));
      out_.Line(absl::StrCat("const int i = e / ", plan_.thread_n, ", j = e % ", plan_.thread_n, ";"));
      sum = "results[e]";
    } else {
      OpenSums();
    }
    const std::string index = text_.index_type();
    const int32_t across = plan_.tile_n / plan_.thread_n, down = plan_.tile_m / plan_.thread_m;
    out_.Line(absl::StrCat("const ", index, " m = m0 + (i / ", chunk_, " * ", down, " + y) * ", chunk_, " + i % ",
                           chunk_, ", n = n0 + (j / ", chunk_, " * ", across, " + x) * ", chunk_, " + j % ", chunk_,
                           ";"));
    std::string outside;
    if (plan_.a.extent % plan_.tile_m != 0) outside = absl::StrCat("m >= ", plan_.a.extent);
    if (plan_.b.extent % plan_.tile_n != 0)
      absl::StrAppend(&outside, outside.empty() ? "" : " || ", "n >= ", plan_.b.extent);
    if (!outside.empty()) out_.Line(absl::StrCat("if (", outside, ") continue;"));
    text_.Decode("m", plan_.a.vars);
    text_.Decode("n", plan_.b.vars);
    text_.Element(sum);
    once ? out_.Close() : CloseSums();
  }

  const ScheduledKernel& k_;
  const TilePlan& plan_;
  TileText text_;
  TextWriter& out_;
  const DType dtype_;
  const std::string type_;
  const int32_t chunk_;  // neighbouring elements that a thread reads at once
};

}  // namespace

std::string CudaTileText(const ScheduledKernel& kernel) { return CudaTileEmitter(kernel).Emit(); }

}  // namespace fuseline::codegen

#include "server/codegen/cpu/cpu_tile_emitter.h"

#include "absl/strings/str_cat.h"
#include "server/codegen/prelude.h"
#include "server/codegen/tile_text.h"

namespace fuseline::codegen {
namespace {

class CpuTileEmitter {
 public:
  explicit CpuTileEmitter(const ScheduledKernel& kernel)
      : k_(kernel), plan_(*kernel.tile), text_(kernel, "long long"), out_(text_.out()) {
    text_.ReadUnconditionally();
    const DType dtype = kernel.body.reductions[0].type;
    type_ = ComputeTypeName(dtype);
    suffix_ = std::string(DTypeName(dtype));
    panel_ = kCpuPanelBytes / DTypeSizeBytes(dtype);
  }

  std::string Emit() {
    Signature();
    out_.Open("for (long long item = begin; item < end; ++item)");
    const int64_t tiles = plan_.tiles_m() * plan_.tiles_n();
    if (!plan_.batch_vars.empty()) {
      out_.Line(absl::StrCat("const long long batch = item / ", tiles, ";"));
      text_.Decode("batch", plan_.batch_vars);
    }
    out_.Line(absl::StrCat("const long long m0 = item % ", tiles, " / ", plan_.tiles_n(), " * ", plan_.tile_m,
                           ", n0 = item % ", plan_.tiles_n(), " * ", plan_.tile_n, ";"));
    out_.Line(absl::StrCat("const int rows = ", Least(plan_.a.extent, "m0", plan_.tile_m), ";"));
    out_.Line(absl::StrCat("const int columns = ", Least(plan_.b.extent, "n0", plan_.tile_n), ";"));
    out_.Line(absl::StrCat("const int row_panels = (rows + ", kCpuPanelRows - 1, ") / ", kCpuPanelRows,
                           ", column_panels = (columns + ", panel_ - 1, ") / ", panel_, ";"));
    Array("sums", plan_.tile_m * plan_.tile_n);
    Array("a_tile", plan_.tile_m * plan_.tile_k);
    Array("b_tile", plan_.tile_n * plan_.tile_k);
    out_.Line(absl::StrCat("for (int i = 0; i < row_panels * ", kCpuPanelRows * plan_.tile_n, "; ++i) sums[i] = 0;"));
    out_.Open(absl::StrCat("for (long long k0 = 0; k0 < ", plan_.reduced, "; k0 += ", plan_.tile_k, ")"));
    out_.Line(absl::StrCat("const int steps = ", Least(plan_.reduced, "k0", plan_.tile_k), ";"));
    Fill(plan_.a, "a_tile", "m", "rows", "row_panels", kCpuPanelRows);
    Fill(plan_.b, "b_tile", "n", "columns", "column_panels", panel_);
    Multiply();
    out_.Close();
    Store();
    out_.Close();
    out_.Close();
    return absl::StrCat(CpuPrelude().Render(text_.printer().needed()), "\n", out_.text());
  }

 private:
  void Signature() {
    for (const BodyParam& p : k_.body.params) {
      if (IsHalf(p.dtype) || IsF8(p.dtype)) text_.printer().Function(StorageTypeName(p.dtype));
    }
    out_.Line(absl::StrCat("// ", k_.description, "; ", text_.Loops()));
    out_.Open(absl::StrCat("extern \"C\" void ", k_.name, "(void* const* buffers, long long begin, long long end)"));
    for (size_t i = 0; i < k_.body.params.size(); ++i) {
      const BodyParam& p = k_.body.params[i];
      const std::string type = absl::StrCat(p.written ? "" : "const ", StorageTypeName(p.dtype), "*");
      out_.Line(absl::StrCat(type, " __restrict__ const ", p.name, " = (", type, ")buffers[", i, "];"));
    }
  }

  // The smaller of `extent - from` and `tile`.
  static std::string Least(int64_t extent, const std::string& from, int64_t tile) {
    if (extent % tile == 0) return absl::StrCat(tile);
    return absl::StrCat(extent, " - ", from, " < ", tile, " ? (int)(", extent, " - ", from, ") : ", tile);
  }

  void Array(const char* name, int64_t count) {
    out_.Line(absl::StrCat("alignas(64) ", type_, " ", name, "[", count, "];"));
  }

  // Packs a factor into panels [step][panel element]; the last panel is filled up with zeros.
  void Fill(const TileFactor& factor, const std::string& tile, const std::string& position, const std::string& count,
            const std::string& panels, int32_t panel) {
    const std::string element = absl::StrCat("(", type_, ")");
    out_.Open(absl::StrCat("for (int p = 0; p < ", panels, "; ++p)"));
    out_.Line(absl::StrCat(type_, "* const to = ", tile, " + p * ", panel * plan_.tile_k, ";"));
    out_.Line(absl::StrCat("const int filled = ", count, " - p * ", panel, " < ", panel, " ? ", count, " - p * ", panel,
                           " : ", panel, ";"));
    const std::string steps = "for (int s = 0; s < steps; ++s)";
    const std::string elements = "for (int i = 0; i < filled; ++i)";
    const auto decode_step = [&] {
      out_.Line("const long long k = k0 + s;");
      text_.Decode("k", plan_.reduced_vars);
    };
    const auto decode_element = [&] {
      out_.Line(absl::StrCat("const long long ", position, " = ", position, "0 + p * ", panel, " + i;"));
      text_.Decode(position, factor.vars);
    };
    out_.Open(factor.reduced_inner ? elements : steps);
    factor.reduced_inner ? decode_element() : decode_step();
    out_.Directive("#pragma GCC ivdep");
    out_.Open(factor.reduced_inner ? steps : elements);
    factor.reduced_inner ? decode_step() : decode_element();
    const std::string value = text_.Factor(factor);
    out_.Line(absl::StrCat("to[s * ", panel, " + i] = ", value, ";"));
    out_.Close();
    out_.Close();
    out_.Line(absl::StrCat("if (filled < ", panel, ") ", steps, " for (int i = filled; i < ", panel, "; ++i) to[s * ",
                           panel, " + i] = 0;"));
    out_.Close();
  }

  void Multiply() {
    const std::string f = text_.printer().Function(absl::StrCat("fl_tile_multiply_", suffix_));
    out_.Open("for (int pn = 0; pn < column_panels; ++pn)");
    out_.Line(absl::StrCat("for (int pm = 0; pm < row_panels; ++pm) ", f, "(a_tile + pm * ",
                           kCpuPanelRows * plan_.tile_k, ", b_tile + pn * ", panel_ * plan_.tile_k, ", sums + pm * ",
                           kCpuPanelRows * plan_.tile_n, " + pn * ", panel_, ", ", plan_.tile_n, ", steps);"));
    out_.Close();
  }

  void Store() {
    out_.Open("for (int i = 0; i < rows; ++i)");
    out_.Line("const long long m = m0 + i;");
    text_.Decode("m", plan_.a.vars);
    out_.Directive("#pragma GCC ivdep");
    out_.Open("for (int j = 0; j < columns; ++j)");
    out_.Line("const long long n = n0 + j;");
    text_.Decode("n", plan_.b.vars);
    text_.Element(absl::StrCat("sums[i * ", plan_.tile_n, " + j]"));
    out_.Close();
    out_.Close();
  }

  const ScheduledKernel& k_;
  const TilePlan& plan_;
  TileText text_;
  TextWriter& out_;
  std::string type_;
  std::string suffix_;
  int32_t panel_ = 0;  // columns of the micro-kernel
};

}  // namespace

std::string CpuTileText(const ScheduledKernel& kernel) { return CpuTileEmitter(kernel).Emit(); }

}  // namespace fuseline::codegen

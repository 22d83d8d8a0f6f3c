// Bytes as an export file of a cache, and as what follows the head of one: both readers end, blame the input, and agree
// on which entries there are.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/cache/export_file.h"
#include "tests/fuzz/fuzz_input.h"

namespace fuseline::fuzz {
namespace {

// Entries of a file that is read from front to back; its status last.
absl::Status ReadAll(const std::string& file, size_t piece, const cache::RecordSigner& signer,
                     std::vector<Fingerprint>& keys) {
  size_t at = 0;
  cache::ExportReader reader(
      [&]() -> absl::StatusOr<std::string> {
        const std::string bytes = file.substr(std::min(at, file.size()), piece);
        at += piece;
        return bytes;
      },
      signer);
  while (true) {
    absl::StatusOr<std::optional<cache::ExportReader::Entry>> entry = reader.Next();
    if (!entry.ok()) return entry.status();
    if (!entry->has_value()) return absl::OkStatus();
    keys.push_back((*entry)->key);
  }
}

void Try(const std::string& file) {
  const std::shared_ptr<cache::RecordSigner> signer = *cache::RecordSigner::Create({});
  std::vector<Fingerprint> keys;
  const absl::Status read = ReadAll(file, file.size() + 1, *signer, keys);
  RequireBlamesInput(read, "read");
  std::vector<Fingerprint> in_pieces;
  // Without the payloads, which are printed in any order.
  const auto text = [](const absl::Status& status) {
    return status.ToString(absl::StatusToStringMode::kWithNoExtraData);
  };
  RequireEqual(text(ReadAll(file, 7, *signer, in_pieces)), text(read), "read in pieces");
  if (keys != in_pieces) ReportFinding("read in pieces", "other entries");
  const absl::StatusOr<std::vector<cache::ExportPlace>> places = cache::ListExportEntries(
      [&](int64_t offset, size_t size) -> absl::StatusOr<std::string> {
        if (static_cast<size_t>(offset) + size > file.size()) ReportFinding("list", "reads behind the file's end");
        return file.substr(static_cast<size_t>(offset), size);
      },
      static_cast<int64_t>(file.size()));
  RequireBlamesInput(places.status(), "list");
  if (!read.ok()) return;
  RequireOk(places.status(), "list what was read");
  std::vector<Fingerprint> listed;
  for (const cache::ExportPlace& place : *places) listed.push_back(place.key);
  if (listed != keys) ReportFinding("list", "other entries");
}

}  // namespace
}  // namespace fuseline::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fuseline::fuzz;
  const std::string bytes(AsText(data, size));
  Try(bytes);
  Try(absl::StrCat("fuseline-cache-export\n\x01", bytes));
  return 0;
}

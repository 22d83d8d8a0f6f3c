"""Tests check_layering.py on small source trees."""

import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_layering  # noqa: E402

TABLE = """
<!-- include table -->
| folder | of ours | of others |
|---|---|---|
| `proto` | | |
| `common/ir` | | |
| `common/ir/codec` | `common/ir`, `proto` | `google` |
| `server/codegen` | `common/ir` | |
| `server/compiler` | `server/codegen/kernel_source.h` | |
| `client/cli` | `common/ir` | |
| `client/cli/local.cc` | `server/compiler` | `grpcpp` |
<!-- end of include table -->
"""


class ProblemTest(unittest.TestCase):

    def setUp(self):
        self.rules = check_layering.parse_table(TABLE)

    def problem(self, path, include, kind='"'):
        return check_layering.problem(path, kind, include, self.rules)

    def test_allowed_includes_are_no_problem(self):
        for path, include in [
            ("common/ir/a.cc", "common/ir/a.h"),
            ("common/ir/ops/b.cc", "common/ir/a.h"),
            ("common/ir/a.cc", "absl/status/status.h"),
            ("common/ir/a.cc", "vector"),
            ("common/ir/a.cc", "sys/mman.h"),
            ("common/ir/codec/c.cc", "fuseline/v1/graph.pb.h"),
            ("common/ir/codec/c.cc", "google/protobuf/message.h"),
            ("server/compiler/d.cc", "server/codegen/kernel_source.h"),
            ("client/cli/local.cc", "server/compiler/d.h"),
            ("client/cli/local.cc", "common/ir/a.h"),
            ("client/cli/local.cc", "grpcpp/grpcpp.h"),
        ]:
            self.assertIsNone(self.problem(path, include), (path, include))

    def test_other_includes_are_problems(self):
        for path, include, expected in [
            ("common/ir/a.cc", "server/codegen/k.h", "may not include from 'server/codegen'"),
            ("common/ir/a.cc", "common/ir/codec/c.h", "may not include from 'common/ir/codec'"),
            ("common/ir/a.cc", "fuseline/v1/graph.pb.h", "generated code"),
            ("common/ir/a.cc", "rocksdb/db.h", "may not include 'rocksdb'"),
            ("common/ir/a.cc", "cuda.h", "may not include 'cuda'"),
            ("server/compiler/d.cc", "server/codegen/emit.h", "may not include from 'server/codegen'"),
            ("client/cli/other.cc", "server/compiler/d.h", "may not include from 'server/compiler'"),
            ("client/cli/other.cc", "grpcpp/grpcpp.h", "may not include 'grpcpp'"),
            ("client/cli/other.cc", "client/python/p.h", "not in the include table"),
            ("server/new/x.cc", "vector", "not in the include table"),
        ]:
            self.assertIn(expected, self.problem(path, include) or "", (path, include))

    def test_own_headers_in_angle_brackets_are_a_problem(self):
        self.assertIn("quotes", self.problem("common/ir/a.cc", "common/ir/a.h", "<"))


class TableTest(unittest.TestCase):

    def rejects(self, rows, expected):
        with self.assertRaisesRegex(check_layering.TableError, expected):
            check_layering.parse_table(f"{check_layering.BEGIN}\n{rows}\n{check_layering.END}\n")

    def test_wrong_tables_are_rejected(self):
        self.rejects("", "no rows")
        self.rejects("| `a` | |", "3 columns")
        self.rejects("| `a` `b` | | |", "one folder")
        self.rejects("| `a` | | |\n| `a` | | |", "two rows")
        self.rejects("| `a` | `b` | |\n| `b` | | |", "stands above")
        with self.assertRaises(check_layering.TableError):
            check_layering.parse_table("no markers")


class ProgramTest(unittest.TestCase):

    def run_on(self, files):
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                full = os.path.join(root, path)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "w", encoding="utf-8") as file:
                    file.write(text)
            return subprocess.run([sys.executable, check_layering.__file__, root], capture_output=True, text=True, check=False)

    def test_clean_tree_passes(self):
        result = self.run_on({"docs/pipeline.md": TABLE, "common/ir/a.cc": '#include "common/ir/a.h"\n#include <vector>\n'})
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_wrong_include_fails_and_names_file_and_line(self):
        result = self.run_on({"docs/pipeline.md": TABLE, "common/ir/a.cc": '\n#include "server/codegen/k.h"\n'})
        self.assertEqual(result.returncode, 1)
        self.assertIn("common/ir/a.cc:2: server/codegen/k.h:", result.stdout)

    def test_tree_without_sources_or_table_is_an_error(self):
        self.assertEqual(self.run_on({"docs/pipeline.md": TABLE}).returncode, 2)
        self.assertEqual(self.run_on({"common/ir/a.cc": ""}).returncode, 2)


if __name__ == "__main__":
    unittest.main()

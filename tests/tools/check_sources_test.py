"""Tests check_sources.py on small source trees."""

import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_sources  # noqa: E402

HEADER = "// What it is.\n#pragma once\n"


class CheckSourcesTest(unittest.TestCase):

    def findings(self, files):
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                full = os.path.join(root, path)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "wb") as file:
                    file.write(text if isinstance(text, bytes) else text.encode("utf-8"))
            return check_sources.check(root)[0]

    def library(self, name, text):
        """A tree with one registered file."""
        return {"common/ir/CMakeLists.txt": f"fuseline_library(NAME ir SOURCES {name})\n", f"common/ir/{name}": text}

    def test_clean_tree_has_no_findings(self):
        files = self.library("graph.h", HEADER)
        files["tests/unit/CMakeLists.txt"] = "fuseline_test(NAME graph_test SOURCES graph_test.cc)\n"
        files["tests/unit/graph_test.cc"] = "TEST(GraphTest, IsThere) {}\n"
        files["tests/unit/graph_fixture.h"] = HEADER
        self.assertEqual(self.findings(files), [])

    def test_each_habit_has_a_finding(self):
        for name, text, expected in [
            ("string_utils.h", HEADER, "name it after its subject"),
            ("graph.h", "#pragma once\n", "starts with a comment"),
            ("graph.h", "// What it is.\n", "no #pragma once"),
            ("graph.cc", "int x;\n" * 1001, "1001 lines"),
            ("graph.cc", "thread_local int depth;\n", "thread_local"),
            ("graph.cc", "static Pool* instance = nullptr;\n", "singleton"),
            ("graph.cc", "Pool& Pool::GetInstance() {\n", "singleton"),
            ("graph.cc", "// Tested by tests/unit/graph_test.cc\n", "no such file"),
        ]:
            findings = self.findings(self.library(name, text))
            self.assertEqual(len(findings), 1, (name, text[:40], findings))
            self.assertIn(expected, findings[0])

    def test_what_is_built_or_large_is_no_source(self):
        for path, content, expected in [
            ("deploy/graph.json", b"[" + b"1," * (256 << 10) + b"1]", "are allowed"),
            ("docs/picture.png", b"\x89PNG\r\n\x1a\n\x00", "binary"),
            ("client/cli/fuseline", b"\x7fELF\x02\x01\x01\x00", "binary"),
            ("docs/latin.md", "Größe\n".encode("latin-1"), "binary"),
        ]:
            findings = self.findings({path: content})
            self.assertEqual(len(findings), 1, (path, findings))
            self.assertIn(expected, findings[0])
        for path, content in [
            ("tests/fuzz/corpus/artifact_decoder/0a.bin", b"\x00\xff"),
            ("docs/size.md", "Größe\n".encode("utf-8")),
            ("deploy/graph.json", b" " * (512 << 10)),
        ]:
            self.assertEqual(self.findings({path: content}), [], path)

    def test_comments_and_literals_are_not_code(self):
        text = '// no thread_local here\n/* static X instance; */\nconst char* a = "thread_local";\nconst char* b = R"(thread_local\n)";\n'
        self.assertEqual(self.findings(self.library("graph.cc", text)), [])

    def test_tested_by_an_existing_file_is_no_finding(self):
        files = self.library("graph.cc", "// Tested by tests/unit/graph_test.cc.\n")
        files["tests/unit/CMakeLists.txt"] = "graph_test.cc\n"
        files["tests/unit/graph_test.cc"] = "\n"
        self.assertEqual(self.findings(files), [])

    def test_unregistered_file_is_a_finding(self):
        files = {"common/ir/CMakeLists.txt": "# graph.cc\nold_graph.cc\n", "common/ir/graph.cc": "\n",
                 "tests/tools/CMakeLists.txt": "\n", "tests/tools/x_test.py": "\n"}
        findings = self.findings(files)
        self.assertEqual([line.split(":")[0] for line in findings], ["common/ir/graph.cc", "tests/tools/x_test.py"])

    def test_file_may_be_registered_in_a_folder_above(self):
        files = {"common/ir/CMakeLists.txt": "fuseline_library(SOURCES ops/views.cc)\n", "common/ir/ops/views.cc": "\n"}
        self.assertEqual(self.findings(files), [])

    def test_file_may_be_registered_elsewhere_by_its_whole_path(self):
        files = {"tests/unit/CMakeLists.txt": "fuseline_test(SOURCES ${PROJECT_SOURCE_DIR}/tests/testing/runner.cc)\n",
                 "tests/testing/runner.cc": "\n", "tests/testing/other.cc": "\n"}
        self.assertEqual([line.split(":")[0] for line in self.findings(files)], ["tests/testing/other.cc"])

    def test_vendored_folder_is_a_finding(self):
        findings = self.findings({"common/third_party/LICENSE": "\n"})
        self.assertEqual(len(findings), 1, findings)

    def test_empty_tree_is_an_error(self):
        with tempfile.TemporaryDirectory() as root:
            result = subprocess.run([sys.executable, check_sources.__file__, root], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 2)


if __name__ == "__main__":
    unittest.main()

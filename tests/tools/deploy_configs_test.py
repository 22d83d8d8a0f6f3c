#!/usr/bin/env python3
"""What deploy/ and docker/ offer is valid: each file is shown to the program that it is for, and compared with what docs/ says.

    deploy_configs_test.py ROOT

A check whose program is not installed is skipped and says so; exit code 77 where all of them were. deploy/install_dependencies.sh installs
the programs with FUSELINE_TEST_DEPLOY=1, and Python packages into .cache/test_deploy.
"""

import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, ".cache", "test_deploy"))
try:
    import yaml
except ImportError:
    yaml = None

METRIC = re.compile(r"\b((?:fuseline|process)_[a-z_]+[a-z])\b")
OVERLAYS = ("compile-farm", "gpu-pool")
# The oldest that the manifests are said to work with.
KUBERNETES_VERSION = "1.27.0"


def path_of(*parts):
    return os.path.join(ROOT, *parts)


def read(*parts):
    with open(path_of(*parts), encoding="utf-8") as file:
        return file.read()


def program(name, *more):
    """Its path; skips the test where there is none."""
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]))
    if found is None:
        raise unittest.SkipTest(f"{name} is not installed")
    return [found, *more]


def need_yaml():
    if yaml is None:
        raise unittest.SkipTest("PyYAML is not installed")


def run(command, **options):
    """(exit code, standard output and error together)."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False, **options)
    return result.returncode, result.stdout


class DeployTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="fuseline-deploy-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def assert_runs(self, command, **options):
        code, output = run(command, **options)
        self.assertEqual(code, 0, f"{' '.join(command)}:\n{output}")
        return output

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path


class ProxyTest(DeployTest):
    def check_haproxy(self, **variables):
        command = program("haproxy", "-c", "-f", path_of("deploy/haproxy/haproxy.cfg"))
        output = self.assert_runs(command, env={**os.environ, **variables})
        self.assertNotIn("WARNING", output)

    def certificate(self):
        key, certificate = self.write("key.pem", ""), self.write("certificate.pem", "")
        self.assert_runs(program("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                                 "-subj", "/CN=localhost", "-keyout", key, "-out", certificate))
        with open(key, encoding="utf-8") as one, open(certificate, encoding="utf-8") as other:
            return certificate, self.write("both.pem", other.read() + one.read())

    def test_haproxy(self):
        self.check_haproxy()

    def test_haproxy_with_four_servers(self):
        self.check_haproxy(FUSELINE_LISTEN="127.0.0.1:50061", **{f"FUSELINE_SERVER_{i}": f"10.0.0.{i}:50061" for i in range(1, 5)})

    def test_haproxy_with_tls(self):
        program("haproxy")
        certificate, both = self.certificate()
        self.check_haproxy(FUSELINE_TLS_CERT=both)
        self.check_haproxy(FUSELINE_TLS_CERT=both, FUSELINE_TLS_CLIENT_CA=certificate, FUSELINE_SERVER_CA=certificate)

    def test_nginx(self):
        # Folders that whoever runs the test may write to.
        text = re.sub(r" /(?:run|tmp)/", f" {self.folder}/", read("deploy/nginx/nginx.conf"))
        self.assert_runs(program("nginx", "-t", "-p", self.folder, "-c", self.write("nginx.conf", text)))


class SystemdTest(DeployTest):
    def test_unit(self):
        command = program("systemd-analyze", "verify", "--man=no")
        text, count = re.subn(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", read("deploy/systemd/fuseline-server.service"))
        self.assertEqual(count, 1)
        code, output = run(command + [self.write("fuseline-server.service", text)])
        mine = [line for line in output.splitlines() if "fuseline-server" in line]
        self.assertEqual((code, mine), (0, []), output)


class PrometheusTest(DeployTest):
    def setUp(self):
        super().setUp()
        self.promtool = program("promtool")
        shutil.copytree(path_of("deploy/prometheus"), os.path.join(self.folder, "prometheus"))

    def promtool_runs(self, *arguments):
        return self.assert_runs(self.promtool + list(arguments), cwd=os.path.join(self.folder, "prometheus"))

    def test_config(self):
        for name in ("deploy/prometheus/targets.example.yml", "docker/prometheus_targets.yml"):
            self.write("prometheus/targets/" + os.path.basename(name), read(name))
        self.assertNotIn("WARNING", self.promtool_runs("check", "config", "prometheus.yml"))

    def test_rules(self):
        self.promtool_runs("check", "rules", "rules.yml")
        self.promtool_runs("test", "rules", "rules_test.yml")

    def test_dashboard_expressions(self):
        expressions = dashboard_expressions()
        rules = [{"record": f"panel:{i}", "expr": re.sub(r"\$__rate_interval", "5m", text)} for i, text in enumerate(expressions)]
        self.promtool_runs("check", "rules", self.write("panels.json", json.dumps({"groups": [{"name": "panels", "rules": rules}]})))


def dashboard_expressions():
    panels = json.loads(read("deploy/grafana/dashboard.json"))["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


class MetricsTest(unittest.TestCase):
    """What rules, dashboard and autoscalers name is in docs/metrics.md."""

    def setUp(self):
        text = read("docs/metrics.md")
        self.documented = set(re.findall(r"(?m)^\| `((?:fuseline|process)_[a-z_]+)`", text))
        self.alert_conditions = re.findall(r"(?m)^\| (`.*)$", text[text.index("## What to alert on"):])
        self.assertGreater(len(self.documented), 50)

    def metrics(self, text):
        # A histogram's series, and names of recording rules, end in more.
        text = re.sub(r"\b(?:instance|job):\w+:\w+", "", text)
        return {re.sub(r"_(bucket|sum|count)$", "", name) for name in METRIC.findall(text)}

    def test_rules(self):
        text = "\n".join(re.findall(r"(?m)^\s+(?:expr:|[^a-z#\n]*sum|\s*[>/]).*$", read("deploy/prometheus/rules.yml")))
        named = self.metrics(text)
        self.assertGreater(len(named), 10)
        self.assertEqual(named - self.documented, set())
        self.assertEqual(self.metrics(read("deploy/prometheus/rules_test.yml")) - self.documented, set())

    def test_every_condition_of_the_docs_has_an_alert(self):
        self.assertGreater(len(self.alert_conditions), 8)
        named = self.metrics(read("deploy/prometheus/rules.yml"))
        for condition in self.alert_conditions:
            wanted = self.metrics(condition.split("|")[0] if "\\|" not in condition else condition)
            self.assertEqual(wanted - named, set(), condition)

    def test_dashboard(self):
        dashboard = json.loads(read("deploy/grafana/dashboard.json"))
        ids = [panel["id"] for panel in dashboard["panels"]]
        self.assertEqual(len(ids), len(set(ids)))
        named = self.metrics("\n".join(dashboard_expressions()))
        self.assertGreater(len(named), 30)
        self.assertEqual(named - self.documented, set())

    def test_autoscalers(self):
        adapter = read("deploy/kubernetes/prometheus-adapter.yaml")
        offered = re.search(r"name: \{as: (\w+)\}", adapter).group(1)
        series = re.search(r"seriesQuery: '([\w:]+)", adapter).group(1)
        self.assertIn(f"record: {series}\n", read("deploy/prometheus/rules.yml"))
        for overlay in OVERLAYS:
            self.assertIn(f"metric: {{name: {offered}}}", read("deploy/kubernetes/overlays", overlay, "autoscaler.yaml"))


class SettingsTest(unittest.TestCase):
    """The settings files and command lines name flags that docs/config.md has (which a test compares with the program)."""

    def setUp(self):
        self.flags = set(re.findall(r"`--(?:no-)?([a-z_]+)`", read("docs/config.md")))

    def test_settings_files(self):
        files = glob.glob(path_of("d[eo]*/**/*.toml"), recursive=True)
        self.assertGreaterEqual(len(files), 4)
        for path in files:
            with open(path, encoding="utf-8") as file:
                names = set(re.findall(r"(?m)^([a-z_]+) *=", file.read()))
            self.assertGreater(len(names), 3, path)
            self.assertEqual(names - self.flags, set(), path)

    def test_compose(self):
        names = set(re.findall(r"(?m)^ +- --([a-z_]+)=", read("docker/compose.yaml")))
        self.assertIn("shared_cache", names)
        self.assertEqual(names - self.flags, set())


class ComposeTest(unittest.TestCase):
    def test_what_services_use_is_there(self):
        need_yaml()
        compose = yaml.safe_load(read("docker/compose.yaml"))
        overlay = yaml.safe_load(read("docker/compose.gpu.yaml"))
        services = compose["services"]
        self.assertLessEqual(set(overlay["services"]), set(services))
        self.assertEqual(set(services), {"server-1", "server-2", "redis", "haproxy", "prometheus"})
        for name, service in services.items():
            self.assertTrue(service["read_only"], name)
            self.assertEqual(service["cap_drop"], ["ALL"], name)
            self.assertEqual(service["security_opt"], ["no-new-privileges"], name)
            self.assertLessEqual(set(service["networks"]), set(compose["networks"]), name)
            self.assertLessEqual(set(service.get("secrets", [])), set(compose["secrets"]), name)
            self.assertLessEqual(set(service.get("depends_on", [])), set(services), name)
            for port in service.get("ports", []):
                self.assertTrue(port.startswith("${FUSELINE_BIND:-127.0.0.1}:"), port)
            for volume in service.get("volumes", []):
                source = volume.split(":")[0]
                if source.startswith("."):
                    self.assertTrue(os.path.exists(path_of("docker", source)), f"{name}: {source}")
                else:
                    self.assertIn(source, compose["volumes"], name)


class KubernetesTest(DeployTest):
    def setUp(self):
        super().setUp()
        need_yaml()
        try:
            import kubernetes_validate
        except ImportError:
            raise unittest.SkipTest("kubernetes-validate is not installed") from None
        self.validator = kubernetes_validate
        self.tree = os.path.join(self.folder, "kubernetes")
        shutil.copytree(path_of("deploy/kubernetes"), self.tree, ignore=shutil.ignore_patterns("secrets"))
        for name in ("redis_password", "cache_keys"):
            self.write(f"kubernetes/base/secrets/{name}", "placeholder\n")

    def validate(self, manifest):
        try:
            self.validator.validate(manifest, KUBERNETES_VERSION, strict=True)
        except self.validator.ValidationError as error:
            self.fail(f"{manifest['kind']} {manifest['metadata']['name']}: {error.path}: {error.message}")

    def build(self, overlay):
        """The manifests of an overlay, by kind and name (without the hash that kustomize adds)."""
        kubectl = program("kubectl")
        code, output = run(kubectl + ["version", "--client"])
        version = re.search(r"Kustomize Version: v?(\d+)", output)
        if code != 0 or version is None or int(version.group(1)) < 5:
            raise unittest.SkipTest("kubectl with kustomize 5 is not installed")
        output = self.assert_runs(kubectl + ["kustomize", os.path.join(self.tree, "overlays", overlay)])
        return {(m["kind"], re.sub(r"-[a-z0-9]{10}$", "", m["metadata"]["name"])): m for m in yaml.safe_load_all(output)}

    def test_single_files(self):
        count = 0
        for path in glob.glob(os.path.join(self.tree, "**", "*.yaml"), recursive=True):
            with open(path, encoding="utf-8") as file:
                documents = list(yaml.safe_load_all(file))
            for document in documents:
                # kustomize's own files, values of a chart, and patches, which are no whole manifests.
                if "kind" in document and document["kind"] not in ("Kustomization", "Component") and not path.endswith(("compile-farm/server.yaml", "gpu-pool/server.yaml")):
                    self.validate(document)
                    count += 1
        self.assertGreater(count, 8)

    def test_overlays(self):
        for overlay in OVERLAYS:
            manifests = self.build(overlay)
            for manifest in manifests.values():
                self.validate(manifest)
                if manifest["kind"] != "Namespace":
                    self.assertEqual(manifest["metadata"]["namespace"], "fuseline", manifest["metadata"]["name"])
            self.check_pods(manifests)
            self.check_services(manifests)
            scaled = manifests["HorizontalPodAutoscaler", "fuseline"]["spec"]["scaleTargetRef"]
            self.assertIn((scaled["kind"], scaled["name"]), manifests)

    def check_pods(self, manifests):
        for kind, name in (("StatefulSet", "fuseline"), ("Deployment", "redis")):
            pod = manifests[kind, name]["spec"]["template"]["spec"]
            self.assertTrue(pod["securityContext"]["runAsNonRoot"], name)
            self.assertFalse(pod["automountServiceAccountToken"], name)
            volumes = {volume["name"] for volume in pod["volumes"]}
            volumes |= {claim["metadata"]["name"] for claim in manifests[kind, name]["spec"].get("volumeClaimTemplates", [])}
            for volume in pod["volumes"]:
                for source, key in (("configMap", "name"), ("secret", "secretName")):
                    if source in volume:
                        named = re.sub(r"-[a-z0-9]{10}$", "", volume[source][key])
                        self.assertIn(({"configMap": "ConfigMap", "secret": "Secret"}[source], named), manifests)
            for container in pod["containers"]:
                context = container["securityContext"]
                self.assertTrue(context["readOnlyRootFilesystem"], name)
                self.assertFalse(context["allowPrivilegeEscalation"], name)
                self.assertEqual(context["capabilities"], {"drop": ["ALL"]}, name)
                self.assertLessEqual({mount["name"] for mount in container["volumeMounts"]}, volumes, name)
                self.assertIn("memory", container["resources"]["limits"], name)
                self.assertIn("readinessProbe", container, name)

    def check_services(self, manifests):
        pods = [m["spec"]["template"] for (kind, _), m in manifests.items() if kind in ("StatefulSet", "Deployment")]
        for (kind, name), manifest in manifests.items():
            spec = manifest["spec"] if "spec" in manifest else {}
            wanted = spec.get("selector") if kind == "Service" else spec.get("podSelector", {}).get("matchLabels")
            if not wanted:
                continue
            chosen = [pod for pod in pods if wanted.items() <= pod["metadata"]["labels"].items()]
            self.assertEqual(len(chosen), 1, f"{kind} {name} selects {len(chosen)} sets of pods")
            ports = {port["name"] for container in chosen[0]["spec"]["containers"] for port in container["ports"]}
            for port in spec.get("ports", []):
                self.assertIn(port["targetPort"], ports, name)

    def test_edge(self):
        path = os.path.join(self.tree, "overlays", "gpu-pool", "kustomization.yaml")
        with open(path, "a", encoding="utf-8") as file:
            file.write("components: [../../components/edge]\n")
        manifests = self.build("gpu-pool")
        for manifest in manifests.values():
            self.validate(manifest)
        self.check_services(manifests)
        container = manifests["Deployment", "fuseline-edge"]["spec"]["template"]["spec"]["containers"][0]
        variables = {variable["name"] for variable in container["env"]}
        self.assertLessEqual({"FUSELINE_TLS_CERT", "FUSELINE_TLS_CLIENT_CA"}, variables)
        for variable in variables:
            self.assertIn(variable, read("deploy/haproxy/haproxy.cfg"))

    def test_gpu_pool_asks_for_a_gpu_and_the_compile_farm_for_none(self):
        container = lambda manifests: manifests["StatefulSet", "fuseline"]["spec"]["template"]["spec"]["containers"][0]
        self.assertEqual(container(self.build("gpu-pool"))["resources"]["limits"]["nvidia.com/gpu"], "1")
        farm = self.build("compile-farm")
        self.assertNotIn("nvidia.com/gpu", container(farm)["resources"]["limits"])
        self.assertIn("execute = false", farm["ConfigMap", "fuseline-config"]["data"]["fuseline.toml"])


class ReadmeTest(unittest.TestCase):
    def test_every_folder_has_one_that_says_how_to_check_it(self):
        for folder in ("deploy/haproxy", "deploy/nginx", "deploy/systemd", "deploy/prometheus", "deploy/grafana", "deploy/kubernetes", "docker"):
            self.assertRegex(read(folder, "README.md"), r"(?m)^Check: ", folder)


if __name__ == "__main__":
    result = unittest.main(verbosity=1, exit=False).result
    for test, reason in result.skipped:
        print(f"skipped: {test}: {reason}")
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if result.testsRun == len(result.skipped) else 0)

"""The tests of clients whose packages do not contain them, unchanged, on our broker: from repositories of git.

The variable BARNABAS_CHECKOUTS names a folder with clones of the projects, or links to them; they need no work tree.

    aiokafka                 tests/test_sasl.py and the test of TLS
    confluent-kafka-python   authorized operations and SCRAM users
    kafkajs                  all that need brokers (kafkajs_suite.py)

The files of a tag are copied without the package of the client itself: the installed client is what is tested. The
modules in `stand_ins` are first on the path: their containers and clusters are brokers of ours. Each function returns
the result of each test by its name. What must pass is in tests/data/client_suites.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.clients.foreign_suites import Result, Results, cached, junit_cases, run_or_raise

HERE: Final = Path(__file__).resolve().parent
VARIABLE: Final = "BARNABAS_CHECKOUTS"


class Project(NamedTuple):
    """A project with a repository of this name."""

    name: str
    tag: str
    #: The folder of the client's own package, if it would hide the installed one.
    hiding: str = ""


AIOKAFKA: Final = Project("aiokafka", "v0.14.0", hiding="aiokafka")
CONFLUENT: Final = Project("confluent-kafka-python", "v2.15.0", hiding="src")
KAFKAJS: Final = Project("kafkajs", "v2.2.4")
#: Packages that the tests of confluent-kafka-python import in addition.
_IMPORTED: Final = (
    *("attrs==26.1.0", "authlib==1.9.10", "avro==1.12.2", "cachetools==8.0.2", "certifi==2026.10.19.post1"),
    *("httpx==0.28.1", "requests==2.34.2", "urllib3==2.8.0"),
)


def why_not(project: Project) -> str | None:
    """Returns the reason why the tests of a project cannot run here, if there is one."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return f"{VARIABLE} does not name a folder with clones: no package contains the tests of {project.name}"
    if not (Path(folder) / project.name).exists():
        return f"there is no {project.name} in {folder}"
    return None


def sources(project: Project, target: Path) -> Path:
    """Returns `target`, which must not exist, with the files of the project's tag."""
    repository = Path(os.environ[VARIABLE]) / project.name
    target.mkdir(parents=True)
    archive = target / "archive.tar"
    run_or_raise(["git", "archive", "--format=tar", f"--output={archive}", project.tag], repository)
    with tarfile.open(archive) as opened:
        opened.extractall(target, filter="data")
    archive.unlink()
    if project.hiding:
        shutil.rmtree(target / project.hiding)
    return target


def aiokafka(folder: Path, only: Collection[str] = ()) -> Results:
    """Runs the tests with a log-in, and that of TLS; or only these, by `module.Class.test`."""
    checkout = sources(AIOKAFKA, folder / "aiokafka")
    modules = ["tests/test_sasl.py", "tests/test_consumer.py"]
    chosen = [_node(name) for name in only] or [*modules, "-k", "TestKafkaSASL and not gssapi or ssl_consume"]
    return _pytest(checkout, folder, [*chosen, "--docker-image", "broker:2.13_4.1.0", "--no-pull"])


def confluent(folder: Path, only: Collection[str] = ()) -> Results:
    """Runs the tests of authorized operations and of SCRAM users; or only these, by `module.test`."""
    checkout = sources(CONFLUENT, folder / "confluent")
    admin = "tests/integration/admin"
    modules = [f"{admin}/test_describe_operations.py", f"{admin}/test_user_scram_credentials.py"]
    return _pytest(checkout, folder, [_node(name) for name in only] or modules, [_imported()])


def _pytest(checkout: Path, folder: Path, arguments: Sequence[str], packages: Sequence[Path] = ()) -> Results:
    report, log = folder / "report.xml", folder / "pytest.log"
    paths = [HERE / "stand_ins", checkout, HERE.parents[1] / "src", HERE.parents[1] / "tools", *packages]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, paths), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:rerunfailures"]
    command += ["-p", "no:xdist", "-c", os.devnull, f"--rootdir={checkout}", "--timeout=300", f"--junitxml={report}"]
    done = subprocess.run(
        [*command, *arguments], cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    log.write_text(done.stdout + done.stderr)
    if not report.exists():
        return {"the process": Result("failed", done.stdout[-2000:] + done.stderr[-2000:])}
    return {name.removeprefix("tests."): result for name, result in junit_cases(report)}


def _node(name: str) -> str:
    """Returns the name of a test as pytest takes it."""
    parts = name.split(".")
    place = next(index for index, part in enumerate(parts) if part.startswith("test_"))
    return "::".join(["/".join(["tests", *parts[: place + 1]]) + ".py", *parts[place + 1 :]])


def _imported() -> Path:
    """Returns the folder of packages that no other test needs."""

    def build(target: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run_or_raise([*pip, "--target", str(target / "packages"), *_IMPORTED], target)

    return cached("confluent-packages", " ".join([sys.version, *_IMPORTED]).encode(), build) / "packages"

"""The checksum is that of the package, without what else the package imports."""

from __future__ import annotations

import subprocess
import sys

import crc32c as package
import pytest

from barnabas.common.late_imports import load_extension
from barnabas.records.checksum import crc32c


def test_it_is_the_checksum_of_the_package() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    for data in (b"", b"a", bytes(range(256)) * 33, memoryview(bytearray(b"xyz"))):
        assert crc32c(data) == package.crc32c(data)
        assert crc32c(data, 77) == package.crc32c(data, 77)


def test_a_broker_loads_no_command_line_of_other_packages() -> None:
    code = "import sys, barnabas.server.main; print({'argparse', 'email', 'zipfile'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_package_without_that_module_is_loaded_whole() -> None:
    assert load_extension("json", "_nothing").__name__ == "json"
    with pytest.raises(ImportError):
        load_extension("no_such_package", "_nothing")

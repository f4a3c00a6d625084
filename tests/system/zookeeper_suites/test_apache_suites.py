"""Apache ZooKeeper 3.8.4's own tests, unchanged, on our server: all classes that extend `ClientBase`.

Tests that look into the server need Apache's in their own process. They are excluded, each with its reason.
"""

from __future__ import annotations

import re
import subprocess
import zipfile
from pathlib import Path
from typing import Final

import pytest
from tests.clients import zookeeper_suites
from tests.support.suite_results import check, expected, failed, with_second_run

import zookeeper_jars

pytestmark = pytest.mark.full

ROOT: Final = "org.apache.zookeeper."
CLASSES: Final = (
    "GetAllChildrenNumberTest",
    "GetEphemeralsTest",
    "RemoveWatchesCmdTest",
    "RemoveWatchesTest",
    "ZKUtilTest",
    "ZooKeeperTest",
    "server.CreateTTLTest",
    "server.Emulate353TTLTest",
    "test.ACLRootTest",
    "test.AsyncOpsTest",
    "test.AuthSHA2Test",
    "test.AuthSHA3Test",
    "test.AuthTest",
    "test.BufferSizeTest",
    "test.ChrootAsyncTest",
    "test.ChrootClientTest",
    "test.ChrootTest",
    "test.ClientHammerTest",
    "test.ClientRetryTest",
    "test.ClientSkipACLTest",
    "test.ClientTest",
    "test.CreateTest",
    "test.DigestAuthDisabledTest",
    "test.DisconnectedWatcherTest",
    "test.EnforceQuotaTest",
    "test.FourLetterWordsTest",
    "test.GetChildren2Test",
    "test.MaxCnxnsTest",
    "test.MultiAsyncTransactionTest",
    "test.MultiOperationTest",
    "test.NullDataTest",
    "test.PersistentRecursiveWatcherTest",
    "test.PersistentWatcherACLTest",
    "test.PersistentWatcherTest",
    "test.ServerCnxnTest",
    "test.SessionInvalidationTest",
    "test.SessionTimeoutTest",
    "test.StatTest",
    "test.SyncCallTest",
    "test.WatcherFuncTest",
    "test.WatcherTest",
    "test.ZooKeeperQuotaTest",
)
_INSIDE: Final = "looks into the Java objects of the server"
_ENSEMBLE: Final = "ensembles are not served"
_SASL: Final = "SASL is not served"
_TLS: Final = "TLS is not served"
_PROVIDER: Final = "the server loads an authentication provider that is a Java class"
#: Classes that are not run, with the reason.
EXCLUDED_CLASSES: Final = {
    "SaslAuthTest": _SASL,
    "audit.StandaloneServerAuditTest": "reads the audit log of logback in the same process",
    "common.TimeTest": "has no server in it",
    "server.CreateContainerTest": _INSIDE,
    "server.InvalidSnapshotTest": _INSIDE,
    "server.MultiOpSessionUpgradeTest": _ENSEMBLE,
    "server.NIOServerCnxnTest": _INSIDE,
    "server.NettyServerCnxnFactoryTest": _INSIDE,
    "server.NettyServerCnxnTest": _INSIDE,
    "server.PrepRequestProcessorTest": _INSIDE,
    "server.ServerIdTest": _INSIDE,
    "server.SnapshotDigestTest": _INSIDE,
    "server.TxnLogDigestTest": _INSIDE,
    "server.admin.CommandsTest": "the HTTP server for administration is not served",
    "server.quorum.EagerACLFilterTest": _ENSEMBLE,
    "server.quorum.QuorumRequestPipelineTest": _ENSEMBLE,
    "test.EnsembleAuthTest": _PROVIDER,
    "test.FourLetterWordsQuorumTest": _ENSEMBLE,
    "test.FourLetterWordsWhiteListTest": "changes the list of words of a running server by a static field",
    "test.HierarchicalQuorumTest": _ENSEMBLE,
    "test.KeyAuthClientTest": _PROVIDER,
    "test.LoadFromLogTest": _INSIDE,
    "test.LogChopperTest": "has no server in it",
    "test.ObserverHierarchicalQuorumTest": _ENSEMBLE,
    "test.QuorumBase": _ENSEMBLE,
    "test.QuorumBaseOracle_2Nodes": _ENSEMBLE,
    "test.QuorumMajorityTest": _ENSEMBLE,
    "test.QuorumOracleMajTest": _ENSEMBLE,
    "test.QuorumQuotaTest": _ENSEMBLE,
    "test.ResponseCacheTest": _INSIDE,
    "test.SSLAuthTest": _TLS,
    "test.SaslAuthDesignatedClientTest": _SASL,
    "test.SaslAuthDesignatedServerTest": _SASL,
    "test.SaslAuthFailDesignatedClientTest": _SASL,
    "test.SaslAuthFailTest": _SASL,
    "test.SaslAuthMissingClientConfigTest": _SASL,
    "test.SaslAuthRequiredFailNoSASLTest": _SASL,
    "test.SaslAuthRequiredFailWrongSASLTest": _SASL,
    "test.SaslAuthRequiredTest": _SASL,
    "test.SaslDigestAuthOverSSLTest": _SASL,
    "test.SaslKerberosAuthOverSSLTest": _SASL,
    "test.SaslSuperUserTest": _SASL,
    "test.SaslTestUtil": _SASL,
    "test.ThrottledOpObserverTest": _ENSEMBLE,
    "test.ThrottledOpQuorumTest": _ENSEMBLE,
    "test.ThrottledOpStandaloneTest": _INSIDE,
    "test.UnsupportedAddWatcherTest": "the server loads a watch manager that is a Java class",
}
_INJECTED: Final = "makes the server refuse a create by a static field of its class"
_FILES: Final = "reads files that are not published with the tests"
_CONTAINERS: Final = "runs the upkeep of containers by its Java object"
_METRICS: Final = "counts refusals in the metrics of the server's process"
#: Tests that are not run, with the reason.
EXCLUDED: Final = {
    "BufferSizeTest.testStartupFailureCreate": _FILES,
    "BufferSizeTest.testStartupFailureSet": _FILES,
    "BufferSizeTest.testStartupFailureSnapshot": _FILES,
    "ChrootClientTest.testPathValidation": _INJECTED,
    "ClientSkipACLTest.testPathValidation": _INJECTED,
    "ClientTest.testPathValidation": _INJECTED,
    "CreateTTLTest.testCreate": _CONTAINERS,
    "CreateTTLTest.testCreateAsync": _CONTAINERS,
    "CreateTTLTest.testCreateSequential": _CONTAINERS,
    "CreateTTLTest.testModifying": _CONTAINERS,
    "CreateTTLTest.testMulti": _CONTAINERS,
    "Emulate353TTLTest.test353TTL": "needs zookeeper.emulate353TTLNodes, for trees of 3.5.3, and looks inside",
    "Emulate353TTLTest.testCreate": _CONTAINERS,
    "FourLetterWordsTest.testFourLetterWords": "expects java.version in envi; this server has python.version",
    "RemoveWatchesTest.testRemoveAllChildWatchesOnAPath": _INSIDE,
    "RemoveWatchesTest.testRemoveAllDataWatchesOnAPath": _INSIDE,
    "RemoveWatchesTest.testRemoveAllWatchesOnAPath": _INSIDE,
    "WatcherTest.testWatcherCount": _INSIDE,
    "ZKUtilTest.testUnreadableFileInput": "has no server in it, and fails for root, who can read every file",
    "ZooKeeperQuotaTest.testQuota": _INSIDE,
    "ZooKeeperQuotaTest.testDeleteBytesQuota": _METRICS,
    "ZooKeeperQuotaTest.testDeleteCountQuota": _METRICS,
    "ZooKeeperQuotaTest.testSetQuotaWhenCreateNodeExceedBytesQuota": _METRICS,
    "ZooKeeperQuotaTest.testSetQuotaWhenExceedBothBytesAndCountHardQuota": _METRICS,
    "ZooKeeperQuotaTest.testSetQuotaWhenExceedBytesHardQuota": _METRICS,
    "ZooKeeperQuotaTest.testSetQuotaWhenExceedBytesHardQuotaExtend": _METRICS,
    "ZooKeeperQuotaTest.testSetQuotaWhenExceedCountHardQuota": _METRICS,
    "ZooKeeperQuotaTest.testSetQuotaWhenExceedCountHardQuotaExtend": _METRICS,
    "ZooKeeperQuotaTest.testSetQuotaWhenSetChildDataExceedBytesQuota": _METRICS,
    "ZooKeeperQuotaTest.testSetQuotaWhenSetQuotaLessThanExistBytes": _METRICS,
    "ZooKeeperQuotaTest.testSetQuotaWhenSetQuotaLessThanExistCount": _METRICS,
}
#: Flags of the JVM. The class sets the property for Apache's server after it has started, before its first request.
PROPERTIES: Final = {"test.BufferSizeTest": ("-Djute.maxbuffer=100",)}


def simple(name: str) -> str:
    return name.rpartition(".")[2]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", CLASSES)
def test_the_class_passes(name: str, tmp_path: Path) -> None:
    excluded = [f"-{test}" for test in EXCLUDED if test.startswith(f"{simple(name)}.")]
    flags = PROPERTIES.get(name, ())
    results = zookeeper_suites.apache(tmp_path, [ROOT + name], excluded, properties=flags)
    if failures := failed(results):
        # Some tests of these suites measure time; they get a second run, alone.
        again = sorted({f"+{test.partition(' ')[0]}" for test in failures})
        results = with_second_run(
            results, zookeeper_suites.apache(tmp_path, [ROOT + name], [*excluded, *again], properties=flags)
        )
    check(tmp_path, results, [test for test in expected("apache") if test.startswith(f"{simple(name)}.")])


def test_every_class_is_run_or_excluded() -> None:
    (jar,) = zookeeper_jars.test_jars().glob("zookeeper-*-tests.jar")
    with zipfile.ZipFile(jar) as content:
        files = [name for name in content.namelist() if name.endswith(".class") and "$" not in name]
    names = [name.removesuffix(".class").replace("/", ".") for name in files]
    command = ["javap", "-cp", zookeeper_jars.test_classpath(), *names]
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    parents = dict(re.findall(r"^public .*?class ([\w.]+).* extends ([\w.]+)", text, re.MULTILINE))
    found = set()
    for name in parents:
        above = parents.get(name)
        while above in parents and above != f"{ROOT}test.ClientBase":
            above = parents[above]
        if above == f"{ROOT}test.ClientBase":
            found.add(name.removeprefix(ROOT))
    assert found == {*CLASSES, *EXCLUDED_CLASSES}

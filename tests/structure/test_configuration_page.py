"""docs/configuration.md agrees with the tables of keys and the code that reads them."""

from __future__ import annotations

import config_readers
import generate_config_docs
from barnabas.common.config_docs import HEEDED, OWN
from barnabas.common.config_keys import BROKER_KEYS, OWN_KEYS, READ_ONLY, TOPIC_KEYS


def test_the_page_is_what_the_generator_writes() -> None:
    """If this fails: `python tools/generate_config_docs.py`."""
    assert generate_config_docs.TARGET.read_text("utf-8") == generate_config_docs.page()


def test_every_key_with_an_effect_has_a_reader() -> None:
    assert {key for key in (*HEEDED, *OWN_KEYS) if not config_readers.readers(key)} == set()
    assert set(OWN) == set(OWN_KEYS)


def test_a_key_without_a_reader_would_be_found() -> None:
    assert not config_readers.readers("socket.connection.setup.timeout.ms")
    assert not config_readers.readers("remote.log.storage.system.enable")
    assert config_readers.Site("storage/retention.py", "expired") in config_readers.readers("log.retention.hours")


def test_keys_that_can_change_at_run_time_are_read_live() -> None:
    """The exception takes effect at the next start in Kafka, too."""
    dynamic = {name for name, key in BROKER_KEYS.items() if name in HEEDED and key.update_mode != READ_ONLY}
    at_start = {name for name in dynamic if not config_readers.is_read_live(name)}
    assert at_start == {"num.recovery.threads.per.data.dir"}
    assert len(dynamic) > 30


def test_settings_of_topics_are_read_from_their_logs() -> None:
    at_start = {"AppendRules.__init__", "RollLimits.__init__"}  # built again with each change of the topic
    for name, key in TOPIC_KEYS.items():
        if (key.server_default or name) in HEEDED:
            sites = config_readers.readers(name)
            assert any(not site.is_at_start or site.function in at_start for site in sites), name

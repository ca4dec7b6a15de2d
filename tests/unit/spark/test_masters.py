"""What each kind of Spark master needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrormaker.errors import SettingError
from mirrormaker.spark import masters
from mirrormaker.spark.masters import master_for


def configuration(directory: Path, default_fs: str = "file:///") -> dict[str, str]:
    (directory / "core-site.xml").write_text(
        f"<configuration><property><name>fs.defaultFS</name><value>{default_fs}</value></property></configuration>"
    )
    (directory / "yarn-site.xml").write_text("<configuration/>")
    return {"HADOOP_CONF_DIR": str(directory)}


def test_this_machine_gets_two_slots_per_stream_and_unlimited_attempts() -> None:
    master = master_for(None, 3, {})
    assert (master.url, master.is_local) == ("local[6,2147483647]", True)
    assert not master.settings


def test_a_standalone_master_gives_two_slots_per_stream() -> None:
    master = master_for("spark://host:7077", 3, {})
    assert not master.is_local
    assert master.settings["spark.cores.max"] == "6"
    assert not [key for key in master.settings if "yarn" in key]


@pytest.mark.parametrize("streams", [1, 2, 3, 8])
def test_on_yarn_every_stream_has_a_spare_slot_outside_of_any_one_executor(tmp_path: Path, streams: int) -> None:
    settings = master_for("yarn", streams, configuration(tmp_path)).settings
    instances, cores = int(settings["spark.executor.instances"]), int(settings["spark.executor.cores"])
    assert instances * cores >= 2 * streams
    assert (instances - 1) * cores >= streams, "without one executor, all streams still have a slot"


def test_yarn_gets_what_it_needs(tmp_path: Path) -> None:
    master = master_for("yarn", 2, configuration(tmp_path))
    assert master.is_yarn and not master.is_local
    assert master.settings["spark.yarn.isPython"] == "true"
    assert master.settings["spark.python.unix.domain.socket.enabled"] == "false"
    assert int(master.settings["spark.executor.maxNumFailures"]) > 1000
    assert master.archives == "spark.yarn.dist.archives"


def test_jars_are_taken_from_this_path_only_if_nodes_share_the_file_system(tmp_path: Path) -> None:
    assert master_for("yarn", 1, configuration(tmp_path)).settings["spark.yarn.jars"].startswith("local:/")
    shared = master_for("yarn", 1, configuration(tmp_path, "hdfs://nameservice1")).settings
    assert "spark.yarn.jars" not in shared


def test_under_spark_submit_hadoops_files_are_not_looked_for() -> None:
    submitted = {"PYSPARK_GATEWAY_PORT": "1"}
    masters.check("yarn", submitted)
    assert "spark.yarn.jars" not in master_for("yarn", 1, submitted).settings


def test_yarn_without_its_configuration_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="HADOOP_CONF_DIR is not set"):
        masters.check("yarn", {})
    with pytest.raises(SettingError, match=r"HADOOP_CONF_DIR=.*there is no yarn-site.xml"):
        masters.check("yarn", {"HADOOP_CONF_DIR": str(tmp_path)})
    (tmp_path / "yarn-site.xml").write_text("<configuration>")
    with pytest.raises(SettingError, match=r"YARN_CONF_DIR=.*yarn-site.xml cannot be read") as refusal:
        masters.check("yarn", {"YARN_CONF_DIR": str(tmp_path)})
    assert "\n" not in str(refusal.value)
    masters.check("spark://host:7077", {})
    masters.check(None, {})

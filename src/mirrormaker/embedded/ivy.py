"""Download artifacts and their dependencies with the Ivy that PySpark ships.

It runs as a process of its own (`python -m mirrormaker.embedded.ivy directory artifact...`): a Spark session of the
caller and this one's output cannot disturb each other.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from mirrormaker.embedded.releases import Artifact

_ERRORS_ONLY = 0  # a level of Ivy's Message


def read_artifact(text: str) -> Artifact:
    """Return the artifact that `str(artifact)` wrote."""
    organisation, name, version = text.rstrip("!").split(":")
    return Artifact(organisation, name, version, forced=text.endswith("!"))


def resolve(gateway: Any, artifacts: list[Artifact], directory: Path) -> list[str]:
    """Download the jars into `directory/jars`. Return the problems."""
    ivy_package = gateway.jvm.org.apache.ivy
    module = ivy_package.core.module
    ivy_package.util.Message.setDefaultLogger(ivy_package.util.DefaultMessageLogger(_ERRORS_ONLY))
    settings = ivy_package.core.settings.IvySettings()
    settings.setDefaultIvyUserDir(gateway.jvm.java.io.File(str(directory / "ivy")))
    resolver = ivy_package.plugins.resolver.IBiblioResolver()
    resolver.setName("public")
    resolver.setM2compatible(True)
    resolver.setUsepoms(True)
    settings.addResolver(resolver)
    settings.setDefaultResolver("public")

    # All artifacts are resolved together, so that a dependency of several of them has one version.
    wanted = module.descriptor.DefaultModuleDescriptor.newDefaultInstance(
        module.id.ModuleRevisionId.newInstance("mirrormaker", "embedded", "working")
    )
    for artifact in artifacts:
        revision = module.id.ModuleRevisionId.newInstance(artifact.organisation, artifact.name, artifact.version)
        dependency = module.descriptor.DefaultDependencyDescriptor(wanted, revision, artifact.forced, False, True)
        dependency.addDependencyConfiguration("default", "default")
        wanted.addDependency(dependency)

    options = ivy_package.core.resolve.ResolveOptions()
    configurations = gateway.new_array(gateway.jvm.java.lang.String, 1)
    configurations[0] = "default"
    options.setConfs(configurations)
    report = ivy_package.Ivy.newInstance(settings).resolve(wanted, options)

    problems = [str(problem) for problem in report.getAllProblemMessages()]
    (directory / "jars").mkdir()
    for artifact_report in report.getAllArtifactsReports():
        file = artifact_report.getLocalFile()
        if file is None:
            problems.append(f"not downloaded: {artifact_report.getName()}")
        elif file.getName().endswith(".jar"):
            shutil.move(file.getPath(), directory / "jars" / file.getName())
    return problems


def main() -> None:
    """Resolve the artifacts on the command line and print the problems, one per line."""
    directory, *texts = sys.argv[1:]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    try:
        from pyspark.java_gateway import launch_gateway

        gateway = launch_gateway(popen_kwargs=quiet)
        problems = resolve(gateway, [read_artifact(text) for text in texts], Path(directory))
    except Exception as error:
        problems = [" ".join(str(error).split())]
    print("\n".join(problems))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()

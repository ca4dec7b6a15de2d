"""Load the plugins of all tests. They are named here because `-p` looks for modules before the repository is on the path."""

pytest_plugins = ["tests.support.order", "tests.support.skips"]

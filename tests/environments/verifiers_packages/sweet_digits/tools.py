"""The server of the tool."""

import verifiers.v1 as vf


class DigitsState(vf.State):
    calls: int = 0


class DigitsToolset(vf.Toolset[vf.ToolsetConfig, DigitsState]):
    TOOL_PREFIX = None

    @vf.tool
    def add(self, a: int, b: int) -> str:
        """Add two numbers."""
        self.state.calls += 1
        return str(a + b)


if __name__ == "__main__":
    DigitsToolset.run()

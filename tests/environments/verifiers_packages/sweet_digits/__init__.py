"""A taskset of verifiers: add two numbers, with a tool that adds and counts its calls in the state of the rollout."""

import verifiers.v1 as vf

from sweet_digits.tools import DigitsState, DigitsToolset

__all__ = ["DigitsTaskset"]


class DigitsData(vf.TaskData):
    answer: str = ""


class DigitsConfig(vf.TaskConfig):
    tools: vf.ToolsetConfig = vf.ToolsetConfig()


class DigitsTask(vf.Task[DigitsData, DigitsState, DigitsConfig]):
    @classmethod
    def toolsets(cls, config):
        return [DigitsToolset(config.tools)]

    @vf.reward(weight=0.75)
    async def right(self, trace) -> float:
        return float(self.data.answer in trace.last_reply)

    @vf.reward(weight=0.5)
    async def by_tool(self, trace) -> float:
        return float(trace.state.calls == 1)


class DigitsTasksetConfig(vf.TasksetConfig):
    task: DigitsConfig = DigitsConfig()


class DigitsTaskset(vf.Taskset[DigitsTask, DigitsTasksetConfig]):
    def load(self):
        for a in range(3):
            data = DigitsData(prompt=f"What is {a} and 40?", system_prompt="Be short.", answer=str(a + 40))
            yield DigitsTask(data, self.config.task)

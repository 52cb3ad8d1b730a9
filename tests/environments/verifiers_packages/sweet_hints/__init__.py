"""An environment of verifiers whose user speaks: it says whether a guess is too low, and ends at the number."""

import verifiers.v1 as vf

__all__ = ["HintsEnv", "HintsTaskset"]


class HintsTask(vf.Task[vf.TaskData]):
    pass


class HintsTaskset(vf.Taskset[HintsTask, vf.TasksetConfig]):
    def load(self):
        yield HintsTask(vf.TaskData(prompt="Guess a number up to 9."))


class HintsConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()


class HintsEnv(vf.Env[HintsConfig]):
    async def run(self, task, agents):
        async with agents.player.interaction(task) as interaction:
            segment, guesses = await interaction.turn(), 1
            while not segment.terminated and segment.last_reply.strip() != "7":
                low = segment.last_reply.strip() < "7"
                segment, guesses = await interaction.turn("too low" if low else "too high"), guesses + 1
        interaction.trace.record_reward("guessed", float(segment.last_reply.strip() == "7") - guesses / 10)

"""Embedded engines in processes of their own.

Python runs one thread at a time, so an engine in the process of a stage waits while the stage renders, reads and writes
dialogues, and the stage waits while the engine samples. With a model of a million parameters a second core stays idle.
Here a stage (`client`) sends its requests to several processes (`program`), each with an engine of its own, that the
dialogues are divided among.
"""

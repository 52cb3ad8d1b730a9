import os

from sweet import collector

with collector.paused():
    from sweet.llm.hosted.program import main

if __name__ == "__main__":
    main()
    os._exit(0)  # taking the libraries apart takes seconds, and there is nothing to write

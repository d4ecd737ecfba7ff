"""A member that is nothing but the SDK's own client over the bridge in its arguments; the era is the first of them.

It asks who it is, asks its lead a question, and replies to its open turn, once for each line that is typed to it.
"""

import sys

import trio
from mcp import Client, StdioServerParameters


async def main(era: str, command: str, *args: str) -> None:
    server = StdioServerParameters(command=command, args=list(args), env=None)
    async with Client(server, mode=era) as client:
        tools = sorted(tool.name for tool in (await client.list_tools()).tools)
        print("tools:", " ".join(tools), flush=True)
        print("ready>", flush=True)
        while line := await trio.to_thread.run_sync(sys.stdin.readline):
            who = await client.call_tool("fleet_whoami", {})
            asked = await client.call_tool("fleet_ask", {"text": f"may I {line.strip()}?"})
            assert who.structured_content is not None
            assert asked.structured_content is not None
            answer = f"{who.structured_content['id']} was told {asked.structured_content['answer']}"
            await client.call_tool("fleet_reply", {"text": answer})
            print("ready>", flush=True)


trio.run(main, *sys.argv[1:])

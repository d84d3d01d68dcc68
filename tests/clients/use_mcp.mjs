// The official TypeScript SDK, which begins with `initialize`: asks for advice over HTTP (an address) or stdio (a command).
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [where, repo, hardware] = process.argv.slice(2);
const transport = where.startsWith("http")
  ? new StreamableHTTPClientTransport(new URL(where))
  : new StdioClientTransport({ command: where, args: ["mcp"], env: process.env });
const client = new Client({ name: "test", version: "1" });
await client.connect(transport);
const { tools } = await client.listTools();
const { content } = await client.callTool({ name: "advise", arguments: { repo, hardware } });
console.log(JSON.stringify({ tools: tools.map((tool) => tool.name), text: content[0].text }));
await client.close();

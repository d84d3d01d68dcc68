// A client of the service, typed by its OpenAPI document alone: what a program does, with nothing cast and nothing assumed.
import { EventSource } from "eventsource";
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

const service = process.argv[2]!;
const repo = process.argv[3]!;
const client = createClient<paths>({ baseUrl: service });
const hardware = "RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600";

function must<T>(value: T | undefined, what: string): T {
  if (value === undefined) throw new Error(`no ${what}`);
  return value;
}

// What may be left out is left out.
const asked: components["schemas"]["AdviceRequest"] = { repo, hardware };
const made = await client.POST("/v1/advice", { body: asked });
const advice = must(made.data, "advice");
const id: string = advice.id;

// Data is data: no union with the text that the same address answers to people.
const read = await client.GET("/v1/advice/{advice_id}", { params: { path: { advice_id: id } } });
const state: string = must(read.data, "advice").state;

const parsed = await client.POST("/v1/hardware/parse", { body: { text: hardware } });
const board = await client.GET("/v1/leaderboard", { params: { query: { limit: 3 } } });
const rows: components["schemas"]["BoardRow"][] = must(board.data, "board").rows;

const wrong = await client.POST("/v1/advice", { body: { repo, hardware: "RTX 9999" } });
const problem: components["schemas"]["Problem"] = must(wrong.error, "problem");

const event = await new Promise<string>((resolve, reject) => {
  const source = new EventSource(`${service}/v1/advice/${id}/events`);
  for (const named of ["ready", "failed"]) {
    source.addEventListener(named, (message) => {
      source.close();
      const data: components["schemas"]["AdviceEvent"] = JSON.parse(message.data);
      resolve(data.state);
    });
  }
  source.addEventListener("error", (failure) => reject(new Error(String(failure.message))));
});

console.log(JSON.stringify({
  status: made.response.status, state, event, rows: rows.length, problem: problem.status, parsed: parsed.response.status,
}));

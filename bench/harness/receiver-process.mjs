/**
 * A receiver of webhooks in its own process: it reads each request to the end, answers 204, and notes what arrived, when, and how long after its
 * publish. On the path /hang it never answers.
 *
 * Event i of `subscriptions` belongs on the path /<i modulo subscriptions>, and its key says what it must follow (webhook.mjs).
 */
import { createServer } from 'node:http'
import { percentile } from './numbers.mjs'
import { nowMs, orderOf, subscriptionOf } from './webhook.mjs'

const host = '127.0.0.1'
let arrivals
let answerWhen

class Arrivals {
  events = 0
  requests = 0
  lastAt = 0
  #shape
  #seen
  #next
  #again = 0
  #swapped = 0
  #astray = 0
  #latencies = []

  constructor({ count, inOrder, ...shape }) {
    this.#shape = shape
    this.#seen = new Uint8Array(count)
    if (inOrder) this.#next = new Int32Array(shape.subscriptions * shape.keys)
  }

  took(path, { i, at }, arrivedAt) {
    this.#again += this.#seen[i] === 1
    this.#seen[i] = 1
    this.#astray += path !== `/${subscriptionOf(i, this.#shape)}`
    if (this.#next) this.#isNext(orderOf(i, this.#shape))
    this.#latencies.push(arrivedAt - at)
    this.events += 1
    this.lastAt = arrivedAt
  }

  #isNext({ line, place }) {
    this.#swapped += this.#next[line] !== place
    this.#next[line] = place + 1
  }

  report() {
    const lost = this.#seen.length - this.#seen.reduce((sum, seen) => sum + seen, 0)
    const problems = [
      ...(lost > 0 ? [`${lost} of ${this.#seen.length} events never arrived`] : []),
      ...(this.#again > 0 ? [`events arrived again ${this.#again} times`] : []),
      ...(this.#swapped > 0 ? [`${this.#swapped} events were not the next of their key`] : []),
      ...(this.#astray > 0 ? [`${this.#astray} events arrived at another endpoint`] : []),
    ]
    const [p50Ms, p99Ms] = [percentile(this.#latencies, 0.5), percentile(this.#latencies, 0.99)]
    return { lastAt: this.lastAt, requests: this.requests, p50Ms, p99Ms, problems }
  }
}

function receive(request, response) {
  const chunks = []
  request.on('data', (chunk) => chunks.push(chunk))
  request.on('end', () => {
    if (request.url === '/hang') return
    const arrivedAt = nowMs()
    response.writeHead(204).end()
    const body = JSON.parse(Buffer.concat(chunks))
    // Busbar's body has events with their data; a peer's is the data.
    for (const { data } of body.events ?? [{ data: body }]) arrivals.took(request.url, data, arrivedAt)
    arrivals.requests += 1
    answerWhen?.()
  })
}

function listen() {
  const server = createServer({ keepAliveTimeout: 60_000, requestTimeout: 0 }, receive)
  return new Promise((resolve) => server.listen(0, host, () => resolve(server.address().port)))
}

const answers = {
  listen: async ({ ports }) => Promise.all(Array.from({ length: ports }, listen)),
  expect: async (shape) => {
    arrivals = new Arrivals(shape)
  },
  until: ({ count }) =>
    new Promise((resolve) => {
      answerWhen = () => arrivals.events >= count && resolve({ lastAt: arrivals.lastAt })
      answerWhen()
    }),
  seen: async () => arrivals.events,
  report: async () => arrivals.report(),
}

process.on('message', async ({ n, ask, about }) => process.send({ n, answer: await answers[ask](about) }))
process.once('disconnect', () => process.exit())

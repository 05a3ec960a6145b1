import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import type { Bus } from '../src/bus.ts'
import { type ErrorCode, errorTable } from '../src/errors.ts'
import { eventually } from './support/eventually.ts'
import { rootToken, testDoor } from './support/http.ts'
import { startReceiver } from './support/receiver.ts'

interface Example {
  url: string
  method: string
  headers: Record<string, string>
  body: string | undefined
  status: number
  answer: string
}

const page = readFileSync(new URL('../docs/http-api.md', import.meta.url), 'utf8')
const exampleShape = /```sh\n(curl [^\n]+)\n```\n`(\d+)`\n```\w*\n([\s\S]*?)\n```/g

/** Reads a curl line as the shell and curl would, as far as this page needs it. */
function readExample([, line, status, answer]: RegExpExecArray, shell: Record<string, string>): Example {
  const words = [...line!.matchAll(/"((?:[^"\\]|\\.)*)"|'([^']*)'|(\S+)/g)].map(
    ([, double, single, bare]) =>
      single ?? (double ?? bare!).replace(/\\(.)/g, '$1').replace(/\$(\w+)/g, (_, name: string) => shell[name]!),
  )
  const example: Example = {
    url: '',
    method: 'GET',
    headers: {},
    body: undefined,
    status: Number(status),
    answer: answer!,
  }
  for (let i = 1; i < words.length; i += 1) {
    const word = words[i]!
    if (word === '-H') {
      const [name, ...value] = words[++i]!.split(': ')
      example.headers[name!.toLowerCase()] = value.join(': ')
    } else if (word === '-d') {
      example.body = words[++i]!
      if (example.method === 'GET') example.method = 'POST'
    } else if (word === '-X') {
      example.method = words[++i]!
    } else if (word !== '-N') example.url = word
  }
  return example
}

/** The same members with values of the same types. */
const shapeOf = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(shapeOf)
  if (typeof value !== 'object' || value === null) return value === null ? 'null' : typeof value
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, shapeOf(inner)]))
}

/** The processor of the page: it cannot handle what was shipped. */
async function runSearch(bus: Bus): Promise<void> {
  bus.processor('search', { match: 'order.>', retry: { attempts: 1 }, onPoison: 'skip' }, async (events) => {
    for await (const { type } of events) if (type === 'order.shipped') throw new Error('no such address')
  })
  await bus.run({ signals: false })
  await eventually(async () => (await bus.workers()).workers[0]?.holds[0]?.partitions.length === 2)
}

test('docs/http-api.md: every curl line answers as the page says', async () => {
  const { door, live, bus } = await testDoor({
    bus: { partitions: 2, worker: 'w1', webhooks: { development: true, dispatch: true } },
  })
  const server = await startReceiver()
  await runSearch(bus)
  const shell: Record<string, string> = { BUSBAR: door.url, TOKEN: rootToken, HOOK: server.url }
  const found = [...page.matchAll(exampleShape)]
  expect(found.length).toBe(page.match(/^curl /gm)!.length)
  for (const match of found) {
    const { url, method, headers, body, status, answer } = readExample(match, shell)
    if (url.includes('/v1/live')) {
      const sse = await live(new URL(url).search.slice(1))
      await eventually(() => sse.events.length > 0)
      const [opening, first] = answer.split('\n\n').filter((frame) => frame !== '')
      expect(opening!.replace(/(id: ).*/, '$1')).toBe(`retry: ${sse.frames[0]!.retry}\nid: `)
      expect(shapeOf(JSON.parse(first!.split('data: ')[1]!))).toEqual(shapeOf(sse.events[0]))
      continue
    }
    // By now one event was shipped, and cannot be handled.
    if (url.endsWith('/v1/streams')) await eventually(async () => (await bus.streams.get('search')).dead === 1)
    if (url.includes('/attempts')) await eventually(async () => (await bus.webhooks.get('erp')).backlog === 0)
    const response = await fetch(url, { method, headers, body: body ?? null })
    const given = JSON.parse(await response.text())
    expect([url, response.status]).toEqual([url, status])
    expect(shapeOf(given)).toEqual(shapeOf(JSON.parse(answer)))
    if (status === 201 && given.seq) shell.ID = given.id
    // Of what was sent, and of what a trigger has started.
    if (status === 201 && given.id?.startsWith('link-sync.')) shell.OPERATION = given.id
    if (given.secret) shell.SECRET = given.secret
    // The first token is the claim's, the last one whoever holds the item.
    if (given.token) {
      shell.CLAIM ??= given.token
      shell.LEASE = given.token
      shell.ITEM ??= given.items?.[0].id
      shell.LAST = given.items?.[0].id
    }
  }
})

// Of the library, the command line and receivers: no route answers them.
const notOverHttp: readonly ErrorCode[] = [
  ...(['LEASE_LOST', 'OPERATION_CANCELLED', 'PARTITIONS_MISMATCH', 'TASK_INVALID', 'SCHEDULE_INVALID'] as const),
  ...(['NOT_DECLARED', 'NOT_DRAINED', 'MODULE_NOT_FOUND', 'BUS_NOT_EXPORTED', 'BUS_CLOSED'] as const),
  ...(['WEBHOOK_UNSIGNED', 'WEBHOOK_TIMESTAMP_REFUSED', 'WEBHOOK_SIGNATURE_REFUSED', 'WEBHOOK_TOO_EARLY'] as const),
  'WEBHOOK_HOST_UNRESOLVED',
]

test('docs/http-api.md: its errors are those of src/errors.ts that a route answers, with their statuses', () => {
  const table = page.slice(page.indexOf('\n| status | codes |')).split('\n\n')[0]!
  const listed = [...table.matchAll(/^\| ([\d, ]+) \| (.*) \|$/gm)].flatMap(([, statuses, codes]) =>
    [...codes!.matchAll(/`([A-Z_]{3,})`/g)].map((found) => [found[1]!, statuses!.split(', ').map(Number)] as const),
  )
  // A body that is too late or too large is invalid as well, whatever its status.
  const wrong = listed.filter(
    ([code, statuses]) => code !== 'BODY_INVALID' && !statuses.includes(errorTable[code as ErrorCode]?.status),
  )
  expect(wrong).toEqual([])
  const codes = Object.keys(errorTable) as ErrorCode[]
  // What only an operator can mend is one row.
  const answered = codes.filter((code) => errorTable[code].status !== 500 && !notOverHttp.includes(code))
  const known = new Set(listed.map(([code]) => code))
  expect(answered.filter((code) => !known.has(code))).toEqual([])
  expect(notOverHttp.filter((code) => known.has(code))).toEqual([])
})

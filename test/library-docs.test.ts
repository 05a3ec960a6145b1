/** docs/library.md: each snippet runs as written and prints what it says; the tables have every option. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { busbar } from '../src/bus.ts'
import { receiver } from '../src/client.ts'
import { redisUrl } from './support/bus.ts'
import { eventually } from './support/eventually.ts'
import { guard } from './support/guard.ts'

const root = resolve(import.meta.dirname, '..')
const text = readFileSync(join(root, 'docs/library.md'), 'utf8')
const [prelude, ...snippets] = [...text.matchAll(/^```js\n([\s\S]*?)^```/gm)].map((found) => found[1]!)

let folder: string

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'library-'))
  mkdirSync(join(folder, 'node_modules'))
  symlinkSync(root, join(folder, 'node_modules', 'busbar'))
  symlinkSync(join(root, 'node_modules', 'zod'), join(folder, 'node_modules', 'zod'))
  writeFileSync(join(folder, 'package.json'), '{ "type": "module" }')
})

afterAll(() => rmSync(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 }))

/** Until Ctrl-C. */
const goesOn = (snippet: string): boolean => snippet.includes('bus.run(') && !snippet.includes('bus.close(')

/** The prelude in a namespace of its own, so that no snippet sees the events of another. */
function whole(snippet: string, i: number): string {
  if (snippet.startsWith('import')) return snippet
  const own = prelude!.replace("'shop'", `'shop-${i}'`)
  return `${own}${snippet}${goesOn(snippet) ? '' : 'await bus.close()\n'}`
}

function start(file: string) {
  const env = { ...process.env, NO_COLOR: '1', BUSBAR_REDIS_URL: redisUrl() }
  const child = spawn(process.execPath, [file], { cwd: folder, env })
  child.once('exit', guard(child.pid!))
  const output = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'] as const)
    child[name].on('data', (chunk) => {
      output[name] += chunk
    })
  return { child, output, closed: once(child, 'close') }
}

test('the first snippet is what the others begin with', () => {
  expect(prelude).toContain("const bus = busbar({ namespace: 'shop' })")
  expect(snippets.length).toBeGreaterThan(15)
})

const named = snippets.map(
  (snippet, i) => [i, snippet.split('\n').find((line) => !line.startsWith('import'))!] as const,
)

test.concurrent.each(named)('snippet %i: %s', async (i) => {
  const snippet = snippets[i]!
  const expected = [...snippet.matchAll(/\/\/ → (.*)$/gm)].map((found) => found[1]!)
  expect(expected.length).toBeGreaterThan(0)
  writeFileSync(join(folder, `snippet-${i}.js`), whole(snippet, i))
  const { child, output, closed } = start(`snippet-${i}.js`)
  const lines = () => output.stdout.split('\n').slice(0, -1)
  const hasEnded = () => child.exitCode !== null
  await eventually(() => hasEnded() || lines().length >= expected.length, { timeoutMs: 30_000, what: output.stderr })
  if (goesOn(snippet)) child.kill('SIGINT')
  expect([(await closed)[0], output.stderr]).toEqual([0, ''])
  // What goes on until it is ended may have gone on.
  expect(lines().slice(0, expected.length)).toEqual(expected)
})

describe('the tables', () => {
  const namesIn = (title: string): string[] => {
    const section = text.split(/^## /m).find((part) => part.startsWith(`${title}\n`))!
    const rows = [...section.matchAll(/^\| (`.*?) \|/gm)].map((found) => found[1]!)
    return rows
      .flatMap((row) => [...row.matchAll(/`(\w+)`/g)].map((found) => found[1]!))
      .filter((name) => name !== 'option')
  }
  /** What a call says that there is. */
  const knownBy = async (call: () => unknown): Promise<string[]> => {
    const message = await Promise.resolve()
      .then(call)
      .catch((error: Error) => error.message)
    return /there is ([\w, ]+)/.exec(String(message))![1]!.split(', ')
  }
  // biome-ignore lint/suspicious/noExplicitAny: the types refuse it.
  const zebra = { zebra: 1 } as any

  test.each([
    ['Make a bus', () => busbar(zebra)],
    ['Publish', () => busbar().publish('a.b', 1, zebra)],
    ['Queues', () => busbar().queue('q', zebra)],
    ['Webhooks', () => busbar().webhook('w', zebra)],
    ['Where webhooks may go', () => busbar({ webhooks: zebra })],
    ['Process', () => busbar().processor('p', { match: '>', ...zebra }, () => undefined)],
    ['Receiving webhooks', () => receiver({ secret: `whsec_${'A'.repeat(32)}`, ...zebra })],
  ])('%s', async (title, call) => {
    const known = (await knownBy(call)).filter((name) => name !== 'type' && name !== 'data')
    expect(namesIn(title).sort()).toEqual(known.sort())
  })
})

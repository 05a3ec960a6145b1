/** The pure parts of the command line: what is shown, and how lines and words are read. */
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { readSince } from '../src/cli/commands/tail.ts'
import { invocation, shellWord, shownPath } from '../src/cli/invocation.ts'
import { type Line, readLines } from '../src/cli/lines.ts'
import { createLog } from '../src/cli/log-lines.ts'
import { spanText } from '../src/cli/operation-tables.ts'
import { colorsFor, createOutput } from '../src/cli/output.ts'
import { columnsOf, printable, printableJson, shorten } from '../src/cli/printable.ts'
import { bar } from '../src/cli/progress.ts'
import { ranges } from '../src/cli/publish-lines.ts'
import type { Session } from '../src/cli/session.ts'
import { commandsToTry } from '../src/cli/up-screen.ts'
import { loadConfig } from '../src/config.ts'

describe('printable', () => {
  test.each([
    ['plain text', 'order:42 – ünïcode 客户 😀', 'order:42 – ünïcode 客户 😀'],
    ['escape sequences', '\u001b[2J\u001b]0;x\u0007', '\\u001b[2J\\u001b]0;x\\u0007'],
    ['C1 controls', '\u009b31m\u0085', '\\u009b31m\\u0085'],
    ['line ends', 'a\nb\rc\u2028d', 'a\\u000ab\\u000dc\\u2028d'],
    ['reading direction', '\u202eabc\u2066', '\\u202eabc\\u2066'],
    ['invisible tags', '\u{e0041}', '\\udb40\\udc41'],
    ['halves of a pair', '\ud83d', '\\ud83d'],
    ['joiners', '👩\u200d💻 क्\u200dष', '👩\u200d💻 क्\u200dष'],
  ])('%s', (_, text, shown) => {
    expect(printable(text)).toBe(shown)
  })

  test('JSON stays the same JSON', () => {
    const text = '{\n\t"a": "\u009b\u202e\u007f\u{e0041}\\n"\r\n}'
    expect(printableJson(text)).not.toContain('\n')
    expect(JSON.parse(printableJson(text))).toEqual(JSON.parse(text))
  })

  test('width is counted in columns', () => {
    expect(['abc', '客户', '😀', 'e\u0301', 'ｶﾅ'].map(columnsOf)).toEqual([3, 4, 2, 1, 2])
    expect(shorten('abcdef', 6)).toBe('abcdef')
    expect(shorten('abcdefg', 6)).toBe('abcde…')
    expect(shorten('客户客户', 6)).toBe('客户…')
    expect(shorten('客户客户', 5)).toBe('客户…')
    expect(shorten('abc', 0)).toBe('')
  })
})

test.each([
  [0, '0ms'],
  [850, '850ms'],
  [999, '999ms'],
  [4_235, '4.2s'],
  [12_000, '12s'],
  [59_960, '1m'],
  [292_505, '4m53s'],
  [3_599_700, '1h'],
  [11_220_000, '3h7m'],
  [86_399_999, '1d'],
  [183_600_000, '2d3h'],
])('%i ms are %s', (ms, text) => {
  expect(spanText(ms)).toBe(text)
})

describe('lines', () => {
  async function linesOf(
    text: string | Uint8Array,
    { size = 3, maxBytes = 100, signal = new AbortController().signal } = {},
  ) {
    const bytes = Buffer.from(text as string)
    async function* chunks() {
      for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size)
    }
    const lines: Line[] = []
    for await (const batch of readLines(chunks(), { maxBytes, signal })) lines.push(...batch)
    return lines.map((line) => [line.number, 'text' in line ? line.text : `problem: ${line.problem}`])
  }

  test.each([1, 2, 3, 1_000])('are the same in chunks of %i bytes', async (size) => {
    const text = `\uFEFFfirst\r\n\n  \nüé😀\n${'x'.repeat(30)}\nlast`
    expect(await linesOf(text, { size, maxBytes: 20 })).toEqual([
      [1, 'first\r'],
      [4, 'üé😀'],
      [5, 'problem: has 30 bytes; the limit is 20'],
      [6, 'last'],
    ])
  })

  test('an aborted reading does not wait for a source that says nothing', async () => {
    const aborting = new AbortController()
    const silent = { [Symbol.asyncIterator]: () => ({ next: () => new Promise<never>(() => {}) }) }
    const reading = readLines(silent, { maxBytes: 1, signal: aborting.signal }).next()
    aborting.abort()
    expect(await reading).toEqual({ done: true, value: undefined })
  })

  test('numbers are gathered into ranges', () => {
    expect(ranges([3, 1, 2, 7, 9, 10])).toBe('1-3, 7, 9-10')
    expect(ranges([])).toBe('')
  })
})

describe('words', () => {
  test('since is a time, a duration ago, or left to the reader', () => {
    const now = Date.UTC(2026, 0, 31, 12)
    expect(readSince('10m', now)).toBe(now - 600_000)
    expect(readSince('2026-01-31', now)).toBe(Date.UTC(2026, 0, 31))
    expect(readSince('2026-01-31T11:00:00+01:00', now)).toBe(Date.UTC(2026, 0, 31, 10))
    expect(readSince('1769860800000', now)).toBe(1_769_860_800_000)
    for (const word of ['now', 'beginning', 'AAECAw', 'nonsense!']) expect(readSince(word, now)).toBe(word)
  })

  test('the program is called as it can be called here', () => {
    const root = mkdtempSync(join(tmpdir(), 'busbar-call-'))
    onTestFinished(() => rmSync(root, { recursive: true, force: true }))
    const main = join(import.meta.dirname, '../src/cli/main.ts')
    const at = (name: string) => {
      mkdirSync(join(root, name), { recursive: true })
      return join(root, name)
    }
    symlinkSync(main, join(at('bin'), 'busbar'))
    symlinkSync(main, join(at('project/node_modules/.bin'), 'busbar'))
    writeFileSync(join(at('clone'), 'package.json'), '{ "name": "busbar" }')
    writeFileSync(join(at('other'), 'busbar'), '')

    const call = (cwd: string, path: string) => invocation({ cwd: join(root, cwd), env: { PATH: path } })
    expect(call('other', join(root, 'bin'))).toBe('busbar')
    expect(call('project', join(root, 'project/node_modules/.bin'))).toBe('npx busbar')
    expect(call('clone', join(root, 'other'))).toBe('npx busbar')
    expect(call('other', '')).toMatch(/^node \S+cli\/main\.ts$/)
    expect(shellWord("it's here")).toBe(`'it'\\''s here'`)
    expect([shownPath('/a/b/c', '/a'), shownPath('/x', '/a'), shownPath('/a', '/a')]).toEqual(['b/c', '/x', '.'])
  })

  test('the first screen gives the flags that lead others to it, but no password', () => {
    const flags = { redis: 'redis://me:hidden-word@h:1', namespace: 'shop', 'http.port': '1' }
    const config = loadConfig({ flags, env: { BUSBAR_DATA_DIR: "it's" }, cwd: '/work' })
    const io = { cwd: '/work', env: {} }
    const running = {
      url: 'http://h:1',
      redis: '',
      namespace: 'shop',
      partitions: 1,
      dataDir: '',
      tokenFile: "/work/it's/t",
      development: false,
    }
    const commands = commandsToTry(running, { config, io } as unknown as Session).join('\n')
    expect(commands).toMatch(
      / publish order\.paid '.*' --key order:42 --redis 'redis:\/\/me:\*\*\*@h:1' --namespace shop\n/,
    )
    expect(commands).toMatch(/ tail .* --redis 'redis:\/\/me:\*\*\*@h:1' --namespace shop\n/)
    expect(commands).toContain(`$(cat 'it'\\''s/t')`)
    expect(commands).not.toContain('hidden-word')
  })

  test('a bar has its share', () => {
    expect([bar(0, 4), bar(0.5, 4), bar(2, 4)]).toEqual(['[----]', '[##--]', '[####]'])
  })
})

describe('log lines', () => {
  const plain = colorsFor({} as never, {})
  const lost = {
    name: 'redis.lost',
    level: 'warn',
    fields: { connection: 'reads', problem: 'a\u001b[2J "b"' },
  } as const

  test('a warning that repeats itself is said once in ten seconds', () => {
    const lines: string[] = []
    const log = createLog({ json: false, from: 'info', colors: plain, write: (line) => lines.push(line) })
    for (const time of [0, 1_000, 9_999, 10_001]) log({ ...lost, time })
    log({ ...lost, fields: { ...lost.fields, connection: 'writes' }, time: 10_002 })
    log({ name: 'redis.connected', level: 'debug', fields: {}, time: 10_003 })
    expect(lines).toEqual([
      '00:00:00.000 warn  redis.lost connection=reads problem="a\\u001b[2J \\"b\\""',
      '00:00:10.001 warn  redis.lost connection=reads problem="a\\u001b[2J \\"b\\""',
      '00:00:10.002 warn  redis.lost connection=writes problem="a\\u001b[2J \\"b\\""',
    ])
  })

  test('JSON lines cannot act on a terminal either, and stay the same JSON', () => {
    const lines: string[] = []
    const log = createLog({ json: true, from: 'info', colors: plain, write: (line) => lines.push(line) })
    log({ ...lost, fields: { problem: 'a\u009b2J\u202eb\u007f' }, time: 0 })
    expect(lines[0]).toContain('a\\u009b2J\\u202eb\\u007f')
    expect(JSON.parse(lines[0]!)).toMatchObject({ problem: 'a\u009b2J\u202eb\u007f' })
    const said: string[] = []
    const stream = { on: () => {}, write: (text: string) => void said.push(text) } as never
    createOutput({ stdout: stream, stderr: stream, env: {} } as never, { json: true }).noteJson({ id: '\u009b\u202e' })
    expect(said).toEqual(['{"id":"\\u009b\\u202e"}\n'])
  })

  test('colours only on a terminal that wants them', () => {
    const terminal = { isTTY: true } as never
    expect(colorsFor(terminal, {}).red('x')).not.toBe('x')
    for (const [stream, env] of [
      [terminal, { NO_COLOR: '1' }],
      [terminal, { TERM: 'dumb' }],
      [{} as never, { FORCE_COLOR: '1', CI: '1' }],
    ] as const)
      expect(colorsFor(stream, env).red('x')).toBe('x')
  })
})

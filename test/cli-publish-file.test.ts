/** `busbar publish --file`: every good line once, in order per key, whatever else is in the file. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { stripVTControlCharacters } from 'node:util'
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import type { Bus } from '../src/bus.ts'
import type { Event } from '../src/event.ts'
import { freshNamespace, redisUrl, testBus } from './support/bus.ts'
import { callCli, jsonLines, runCli, startCli } from './support/cli.ts'
import { eventually } from './support/eventually.ts'
import { startRedis } from './support/redis.ts'

let folder: string

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'busbar-file-'))
  return () => rmSync(folder, { recursive: true, force: true })
})

function fileOf(name: string, content: string | Uint8Array): string {
  const path = join(folder, name)
  writeFileSync(path, content)
  return path
}

function place(redis = redisUrl()): { bus: Bus<Record<never, never>>; flags: string[] } {
  const namespace = freshNamespace()
  return { bus: testBus({ namespace, redis }), flags: ['--redis', redis, '--namespace', namespace] }
}

async function stored(bus: Bus<Record<never, never>>): Promise<Event[]> {
  const events = []
  for await (const event of bus.log.read()) events.push(event)
  return events
}

const line = (n: number, fields: object = {}) =>
  JSON.stringify({ type: 'bulk.line', key: `k:${n % 97}`, data: n, ...fields })

describe('a large file', () => {
  test('[P03] [P25] keeps its order per key, past bad lines, with few of them in flight', async () => {
    const { bus, flags } = place()
    // The last forty have 4 MB together.
    const pad = (n: number) => 'x'.repeat(n < 19_960 ? 100 : 100_000)
    const lines = Array.from({ length: 20_000 }, (_, n) => line(n, { data: { n, pad: pad(n) } }))
    const bad: Record<number, string> = {
      7: '{"type":"bulk.line"',
      100: 'null',
      101: '[1]',
      2000: '{"type":"not a type"}',
      3000: '{"type":"bulk.line","tennant":"x"}',
      4000: '{"type":"bulk.line","key":"a","key":"b"}',
      5000: `{"type":"bulk.line","data":"${'x'.repeat(300_000)}"}`,
      6000: `{"type":"bulk.line","data":"${'x'.repeat(5_000_000)}"}`,
      7000: '{"type":"bulk.line","data":1e999}',
      8000: '{"type":"bulk.line","time":"noon"}',
    }
    for (const [n, text] of Object.entries(bad)) lines[Number(n) - 1] = text
    const path = fileOf('large.jsonl', `${lines.join('\r\n')}\r\n\r\n`)

    // More than this at once, in lines or in bytes, would be refused as BUSY and end the whole run.
    const room = ['--publish-max-waiting', '2000', '--publish-max-waiting-bytes', '1MiB']
    const ended = await runCli(['publish', '--file', path, ...room, ...flags])
    expect(ended.stderr.split('\n').map((text) => /^line (\d+): (\w+): /.exec(text)?.slice(1))).toEqual([
      ['7', 'EVENT_INVALID'],
      ['100', 'EVENT_INVALID'],
      ['101', 'EVENT_INVALID'],
      ['2000', 'EVENT_INVALID'],
      ['3000', 'EVENT_INVALID'],
      ['4000', 'EVENT_INVALID'],
      ['5000', 'EVENT_TOO_LARGE'],
      ['6000', 'EVENT_INVALID'],
      ['7000', 'DATA_UNSERIALISABLE'],
      ['8000', 'EVENT_INVALID'],
      undefined,
    ])
    expect(ended.stderr).toContain('line 7: EVENT_INVALID: The line is not JSON: unexpected end at character 21.')
    expect(ended.stderr).toContain('did you mean "tenant"?')
    expect(ended.stderr).toContain('The line has 5000031 bytes; the limit is 1048576.')
    expect(ended.stdout).toMatch(/^19,990 published, 10 failed {2}[\d.]+ s, [\d,]+\/s\n$/)
    expect(ended.code).toBe(1)

    const lastOf = new Map<string, number>()
    let count = 0
    for (const event of await stored(bus)) {
      const { n } = event.data as { n: number }
      expect(event.key).toBe(`k:${n % 97}`)
      expect(n).toBeGreaterThan(lastOf.get(event.key!) ?? -1)
      lastOf.set(event.key!, n)
      count += 1
    }
    // None twice, as n grows; so none is missing.
    expect(count).toBe(19_990)
  })
})

describe('lines', () => {
  test('[P11] what tail --json prints can be published again, byte for byte', async () => {
    const [from, to] = [place(), place()]
    const data = '{"z": 1, "a": 12345678901234567890, "text": "\\u0041ü😀"}'
    const file = fileOf(
      'fields.jsonl',
      `\uFEFF{"type":"a.b","data":${data},"tenant":"acme","key":"k","time":"2026-01-31T12:00:00Z","trace":"t"}\n\n{"type":"a.c"}`,
    )
    expect((await callCli(['publish', '--file', file, ...from.flags])).code).toBe(0)
    const printed = await callCli(['tail', '--since', 'beginning', '--limit', '2', '--json', ...from.flags])
    const copied = await callCli(['publish', '--file', '-', '--json', ...to.flags], { input: printed.stdout })
    expect(jsonLines(copied.stdout)).toMatchObject([{ published: 2, failed: 0, stopped: false }])

    const plain = ({ type, tenant, key, time, trace, json }: Event) => ({ type, tenant, key, time, trace, json })
    const events = await stored(to.bus)
    expect(events.map(plain)).toEqual((await stored(from.bus)).map(plain))
    expect(plain(events.find(({ type }) => type === 'a.b')!)).toEqual({
      ...{ type: 'a.b', tenant: 'acme', key: 'k', time: Date.UTC(2026, 0, 31, 12), trace: 't', json: data },
    })
  })

  test('[P07] the same file again stores nothing twice when its lines have idempotency keys', async () => {
    const { bus, flags } = place()
    const file = fileOf('once.jsonl', [1, 2, 3].map((n) => line(n, { idempotencyKey: `id-${n}` })).join('\n'))
    await callCli(['publish', '--file', file, ...flags])
    const again = await callCli(['publish', '--file', file, ...flags])
    expect(again.stdout).toMatch(/^3 published \(3 were there already\), 0 failed/)
    expect(await stored(bus)).toHaveLength(3)
  })

  test('bytes that are not UTF-8 fail their line, as JSON too', async () => {
    const { bus, flags } = place()
    const input = Buffer.concat([
      Buffer.from(`${line(1)}\n{"type":"a.b","data":"`),
      Buffer.from([0xff]),
      Buffer.from('"}'),
    ])
    const ended = await callCli(['publish', '--file', '-', '--json', ...flags], { input })
    expect(ended.code).toBe(1)
    expect(jsonLines(ended.stderr)).toEqual([
      { line: 2, error: { code: 'EVENT_INVALID', message: 'The line is not UTF-8.' } },
    ])
    expect(jsonLines(ended.stdout)).toEqual([
      {
        ...{ published: 1, duplicates: 0, failed: 1, stopped: false },
        ...{ tookMs: expect.any(Number), rate: expect.any(Number) },
      },
    ])
    expect(await stored(bus)).toHaveLength(1)
  })

  test('--strict stops at the first bad line', async () => {
    const { bus, flags } = place()
    const file = fileOf('strict.jsonl', [line(1), line(2), 'nonsense', line(3), 'nonsense'].join('\n'))
    const ended = await callCli(['publish', '--file', file, '--strict', ...flags])
    expect(ended.code).toBe(1)
    expect(ended.stderr).toMatch(/^line 3: EVENT_INVALID: .*\nStopped: the rest was not published\.\n$/)
    expect(ended.stdout).toMatch(/^2 published, 1 failed/)
    expect((await stored(bus)).map(({ data }) => data)).toEqual([1, 2])
  })

  test('a progress bar is drawn on a terminal', async () => {
    const { flags } = place()
    const file = fileOf('bar.jsonl', `${Array.from({ length: 3_000 }, (_, n) => line(n)).join('\n')}\nnonsense\n`)
    const { stderr } = await callCli(['publish', '--file', file, ...flags], { columns: 60 })
    expect(stripVTControlCharacters(stderr)).toMatch(/\r\[#*-*\] \d+ % {2}[\d,]+ published/)
    // The report of a bad line stands on a line of its own, whether or not the bar was there; nothing of it is left.
    const clearLine = '\r\u001b[2K'
    const before = stderr.slice(0, stderr.indexOf('\u001b[31mline 3001: EVENT_INVALID:'))
    expect(before === '' || before.endsWith(clearLine)).toBe(true)
    expect(stderr.slice(stderr.lastIndexOf('published'))).toContain(clearLine)
  })
})

describe('not to the end', () => {
  test('lines are published as they come; Redis that is gone stops it, although more may come', async () => {
    const server = await startRedis()
    onTestFinished(() => server.stop())
    const { bus, flags } = place(server.url)
    const child = startCli(['publish', '--file', '-', '--publish-timeout', '500ms', ...flags])
    for (let n = 1; n <= 10; n += 1) child.send(line(n))
    await eventually(async () => (await stored(bus)).length === 10)
    server.pause()
    child.send(line(11))
    child.send(line(12))
    expect(await child.exited).toEqual({ code: 3, signal: null })
    expect(child.stdout.join()).toMatch(/^10 published, 2 failed/)
    expect(child.stderr.slice(0, 2)).toEqual(['Lines without an answer: 11-12', 'Stopped: the rest was not published.'])
    expect(child.stderr[2]).toMatch(/^error (OUTCOME_UNKNOWN|NOT_STORED): /)
    server.resume()
  })

  test('SIGINT lets what is in flight be answered', async () => {
    const { bus, flags } = place()
    const child = startCli(['publish', '--file', '-', ...flags])
    child.send(line(1))
    await eventually(async () => (await stored(bus)).length === 1)
    child.kill('SIGINT')
    expect(await child.exited).toEqual({ code: 1, signal: null })
    expect(child.stdout.join()).toMatch(/^1 published, 0 failed/)
    expect(child.stderr).toEqual(['Stopped: the rest was not published.'])
  })
})

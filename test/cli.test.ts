/** The short commands on the run's Redis: what they print, and how they end. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { stripVTControlCharacters } from 'node:util'
import { describe, expect, onTestFinished, test } from 'vitest'
import { type Bus, rawJson } from '../src/bus.ts'
import { freshNamespace, plainRedis, redisUrl, testBus } from './support/bus.ts'
import { callCli, jsonLines, mainFile, runCli, startCli } from './support/cli.ts'
import { eventually } from './support/eventually.ts'

/** A bus, and the flags that lead a command to its namespace. */
function place(): { bus: Bus<Record<never, never>>; flags: string[] } {
  const namespace = freshNamespace()
  return { bus: testBus({ namespace }), flags: ['--redis', redisUrl(), '--namespace', namespace] }
}

function folder(): string {
  const made = mkdtempSync(join(tmpdir(), 'busbar-cli-'))
  onTestFinished(() => rmSync(made, { recursive: true, force: true }))
  return made
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: exactly these must not reach a terminal.
const acting = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2028\u2029]/u

describe('publish and read back', () => {
  test('[P01] [P11] what one process publishes others read back, byte for byte', async () => {
    const { flags } = place()
    const data = '{"z": 1, "a": 12345678901234567890.10, "text": "ü\\u0001€😀", "deep": [[[{}]]]}'
    const published = await runCli(['publish', 'order.paid', data, '--key', 'order:42', '--json', ...flags])
    expect(published).toMatchObject({ code: 0, stderr: '' })
    const [first] = jsonLines(published.stdout)
    expect(first).toEqual({ id: expect.any(String), seq: expect.any(Number), prev: null, duplicate: false })

    const more = ['--key', 'order:42', '--time', '2026-01-31T12:00:00Z', '--trace', 'abc']
    const second = await callCli(
      ['publish', 'order.shipped', '-', ...more, '--expect-prev', `${first!.seq}`, ...flags],
      {
        input: `\n  ${data}\n`,
      },
    )
    expect(second.stdout).toMatch(new RegExp(`^id \\d+-(\\d+)  seq \\1  prev ${first!.seq}\n$`))

    const tail = await runCli(['tail', 'order.*', '--since', 'beginning', '--limit', '2', '--json', ...flags])
    const history = await callCli(['history', 'order:42', '--json', ...flags])
    const got = await callCli(['get', `${first!.id}`, ...flags])
    const topics = await callCli(['topics', ...flags])
    expect(history.stdout.split('\n').filter((line) => line.endsWith(`"data":${data}}`))).toHaveLength(2)
    expect(jsonLines(history.stdout)[1]).toMatchObject({ prev: first!.seq, time: 1769860800000, trace: 'abc' })
    expect(tail).toMatchObject({ code: 0, stdout: history.stdout })
    expect(got.stdout).toMatch(/^id {6}\d+-\d+\ntype {4}order\.paid\ntenant {2}default\nkey {5}order:42\n/)
    expect(got.stdout).toContain(`\ndata    ${data}\n`)
    expect(topics.stdout).toBe('topic  events\norder       2\n')
  })

  test('[P06] [P07] a conflict is refused, an idempotency key stores once', async () => {
    const { bus, flags } = place()
    const publish = (...options: string[]) =>
      callCli(['publish', 'order.paid', '2', '--key', 'k', ...options, ...flags])
    await bus.publish('order.placed', 1, { key: 'k' })
    const conflict = await publish('--expect-prev', 'none', '--json')
    expect(conflict.code).toBe(1)
    expect(jsonLines(conflict.stderr)).toEqual([
      { error: { code: 'CONFLICT', message: expect.stringContaining('its head is'), retryable: false } },
    ])
    expect((await publish('--idempotency-key', 'pay')).stdout).not.toContain('there already')
    expect((await publish('--idempotency-key', 'pay')).stdout).toContain('(was there already)')
    expect(await bus.log.history('k')).toHaveLength(2)
  })

  test('[P20] --delay and --at: says when it is due, and nothing is visible before', async () => {
    const { bus, flags } = place()
    const publish = (...options: string[]) => callCli(['publish', 'order.reminded', '2', ...options, ...flags])
    const tomorrow = new Date(Date.now() + 86_400_000).toISOString()
    const at = await publish('--at', tomorrow, '--key', 'k')
    expect(at).toMatchObject({ code: 0, stdout: expect.stringMatching(/^id d\d+-\d+ {2}due /) })
    expect(at.stdout).toContain(`due ${tomorrow}\n`)
    const delayed = await publish('--delay', '5m', '--json')
    expect(jsonLines(delayed.stdout)).toEqual([{ id: expect.any(String), due: expect.any(Number), duplicate: false }])
    const wrong: [string[], RegExp][] = [
      [['--delay', '5x'], /"delay" must be a duration like .*; got "5x"/],
      [['--delay', '400d'], /"delay" must be at most 366 days; got "400d"/],
      [['--delay', '5m', '--at', tomorrow], /"at" cannot stand beside a delay/],
      [['--at', 'soon'], /"at" must be ms since the epoch/],
      [['--at', '2099-01-01'], /"at" must be at most 366 days from now/],
    ]
    for (const [options, message] of wrong) {
      const { code, stderr } = await publish(...options)
      expect([options, code]).toEqual([options, 2])
      expect(stderr).toMatch(/^error PARAMETER_INVALID: Parameter /)
      expect(stderr).toMatch(message)
    }
    expect(await bus.delayed.list()).toHaveLength(2)
    expect(await stored(bus)).toEqual([])
  })

  test('JSON that the shell has taken apart: where, and how to quote it', async () => {
    const { flags } = place()
    const broken = await callCli(['publish', 'order.paid', '{total:42}', ...flags])
    expect(broken.stderr).toBe(
      'error DATA_UNSERIALISABLE: Event field "data" is not JSON: unexpected "t" at ' +
        `character 2. In a shell, put it between single quotes, as in '{"total":42}'.\n`,
    )
    const read = await callCli(['publish', 'order.paid', '-', ...flags], { input: '{"total":' })
    expect(read.stderr).toContain('is not JSON: unexpected end at character 10.\n')
  })

  test('data from stdin must be UTF-8 and of an event', async () => {
    const { bus, flags } = place()
    const publish = async (input: string | Uint8Array) =>
      (await callCli(['publish', 'a.b', '-', ...flags], { input })).stderr.split(':')[0]
    expect(await publish(Buffer.from([34, 0xff, 34]))).toBe('error DATA_UNSERIALISABLE')
    expect(await publish('')).toBe('error DATA_UNSERIALISABLE')
    expect(await publish(`"${'x'.repeat(600_000)}"`)).toBe('error EVENT_TOO_LARGE')
    expect(await stored(bus)).toEqual([])
  })
})

async function stored(bus: Bus<Record<never, never>>) {
  const events = []
  for await (const event of bus.log.read()) events.push(event)
  return events
}

describe('tail', () => {
  test('[L02] shows what is stored as it happened, and goes on from its cursor', async () => {
    const { bus, flags } = place()
    for (let n = 0; n < 9; n += 1) await bus.publish('step.taken', n, { key: `k${n}` })
    const tail = (since: string, limit: string) =>
      callCli(['tail', '--since', since, '--limit', limit, '--json', ...flags])
    const first = await tail('beginning', '4')
    expect(jsonLines(first.stdout).map(({ data }) => data)).toEqual([0, 1, 2, 3])
    const [{ cursor }] = jsonLines(first.stderr) as [{ cursor: string }]

    const rest = await tail(cursor, '5')
    const shown = jsonLines(rest.stdout).map(({ data }) => data)
    expect(shown.sort()).toEqual([4, 5, 6, 7, 8])
    expect(jsonLines(rest.stderr)).toEqual([{ cursor: expect.any(String) }])

    const [, , third] = await stored(bus)
    const since = await tail(new Date(third!.time).toISOString(), '6')
    expect(jsonLines(since.stdout).map(({ data }) => data)).toContain(2)
  })

  test('[L01] follows what comes, by several patterns, until SIGINT', async () => {
    const { bus, flags } = place()
    await bus.publish('order.placed', 'stored', { key: 'a' })
    const tail = startCli(['tail', 'order.*', 'acme:mail.>', '--since', '10m', ...flags])
    await tail.waitForLine(/"stored"$/)
    await bus.publishAll([
      { type: 'mail.sent', data: 'not theirs', tenant: 'other' },
      { type: 'mail.sent', data: 'theirs', tenant: 'acme', key: 'm:1' },
    ])
    const line = await tail.waitForLine(/theirs"$/)
    expect(line).toMatch(/^\d{4}-\d\d-\d\dT[\d:.]+Z {2}\d+-\d+ {2,4}acme {5}mail\.sent {5}m:1 {2}"theirs"$/)
    tail.kill('SIGINT')
    expect(await tail.exited).toEqual({ code: 0, signal: null })
    expect(tail.stderr.join('\n')).toMatch(/^To go on after the last event: --since [\w-]+$/)
    expect(tail.stdout).toHaveLength(2)
  })

  test('says what retention took on stderr', async () => {
    const namespace = freshNamespace()
    const bus = testBus({ namespace, partitions: 1, retention: { events: 1 } })
    const tail = (since: string, ...more: string[]) =>
      callCli(['tail', '--since', since, '--limit', '1', '--redis', redisUrl(), '--namespace', namespace, ...more])
    await bus.publish('a.a', 1)
    const [{ cursor }] = jsonLines((await tail('beginning', '--json')).stderr) as [{ cursor: string }]
    for (let n = 0; n < 5; n += 1) await bus.publish('a.a', n)
    await bus.run()
    await eventually(async () => (await stored(bus)).length === 1)

    expect((await tail(cursor)).stderr).toMatch(/^gap: events of partition 0 up to \S+Z are no longer kept\n/)
    const gap = { partition: 0, from: expect.any(Number), to: expect.any(Number) }
    expect(jsonLines((await tail(cursor, '--json')).stderr)[0]).toEqual({ gap })
  })

  test('ends quietly when its reader has gone', async () => {
    const { bus, flags } = place()
    for (let batch = 0; batch < 3; batch += 1)
      await bus.publishAll(Array.from({ length: 1_000 }, () => ({ type: 'many.lines', data: 'x'.repeat(100) })))
    const args = [mainFile, 'tail', '--since', 'beginning', ...flags]
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] })
    onTestFinished(() => void child.kill('SIGKILL'))
    let errors = ''
    child.stderr.on('data', (chunk) => {
      errors += chunk
    })
    await once(child.stdout, 'data')
    child.stdout.destroy()
    expect(await once(child, 'exit')).toEqual([0, null])
    expect(errors).toBe('')
  })
})

describe('on a terminal', () => {
  test('[P11] hostile text cannot act, breaks no line, and is whole in JSON', async () => {
    const { bus, flags } = place()
    const key = 'evil\u001b]0;title\u0007\u001b[2J\nnext\u202edrow\u2028\u009b31m'
    const text = '{\n  "a": "\u009b31m\u202e\u007f \\u001b[31m"\r\n}'
    const { id } = await bus.publish('mail.sent', rawJson(text), { key })
    const commands = [
      ['tail', '--since', 'beginning', '--limit', '1'],
      ['history', key],
      ['get', id],
    ]
    for (const command of commands) {
      const { stdout, stderr } = await callCli([...command, ...flags], { env: { NO_COLOR: '1' } })
      expect(stdout + stderr).not.toMatch(acting)
      expect(stdout).toContain('evil\\u001b]0;title\\u0007\\u001b[2J\\u000anext\\u202edrow\\u2028\\u009b31m')
      expect(stdout).toContain('{   "a": "\\u009b31m\\u202e\\u007f \\u001b[31m"  }\n')
      if (command[0] !== 'get') expect(stdout.split('\n')).toHaveLength(2)
    }

    const piped = await callCli(['get', id, '--json', ...flags])
    expect(piped.stdout).toContain('"\u009b31m\u202e\u007f \\u001b[31m"')
    const shown = await callCli(['get', id, '--json', ...flags], { columns: 80 })
    expect(shown.stdout).not.toMatch(acting)
    for (const { stdout } of [piped, shown]) expect(jsonLines(stdout)).toMatchObject([{ key, data: JSON.parse(text) }])

    const refused = await callCli(['publish', 'bad\u001b[2J', '1', ...flags])
    expect(refused.code).toBe(1)
    expect(refused.stderr).not.toMatch(acting)
  })

  test('lines are as wide as the terminal, and in colour unless NO_COLOR is set', async () => {
    const { bus, flags } = place()
    const long = { text: '長'.repeat(200) }
    await bus.publish('mail.sent', long, { key: 'x'.repeat(100) })
    await bus.publish('mail.sent', long, { key: '客户' })
    const args = ['tail', '--since', 'beginning', '--limit', '2', ...flags]
    const { stdout } = await callCli(args, { columns: 140 })
    expect(stdout).not.toBe(stripVTControlCharacters(stdout))
    const plain = await callCli(args, { columns: 140, env: { NO_COLOR: '1' } })
    expect(plain.stdout).toBe(stripVTControlCharacters(stdout))

    const [first, second] = plain.stdout.trim().split('\n') as [string, string]
    const width = (line: string) => line.length + (line.match(/[長客户]/g) ?? []).length
    for (const line of [first, second]) {
      expect(line).toMatch(/長…$/)
      expect([139, 140]).toContain(width(line))
    }
    expect(width(first.slice(0, first.indexOf('{')))).toBe(width(second.slice(0, second.indexOf('{'))))
    const piped = await callCli(args)
    expect(piped.stdout).toContain(JSON.stringify(long))
    expect(piped.stdout).toContain('x'.repeat(100))
  })

  test('tables align', async () => {
    const { bus, flags } = place()
    await bus.publishAll(Array.from({ length: 1_000 }, () => ({ type: 'a.b' })))
    await bus.publish('__proto__.polluted', 1)
    const { stdout } = await callCli(['topics', ...flags])
    expect(stdout).toBe('topic      events\n__proto__       1\na           1,000\n')
    expect(jsonLines((await callCli(['topics', '--json', ...flags])).stdout)).toEqual([
      { topic: '__proto__', events: 1 },
      { topic: 'a', events: 1_000 },
    ])
  })
})

describe('fsck', () => {
  test('a sound log is clean, a planted violation is named', async () => {
    const { bus, flags } = place()
    await bus.publish('order.paid', 1, { key: 'order:1' })
    const clean = await callCli(['fsck', ...flags])
    expect(clean).toMatchObject({ code: 0, stderr: '', stdout: expect.stringMatching(/^clean: /) })

    await plainRedis().set(`${bus.namespace}:stray`, 'x')
    const found = await callCli(['fsck', ...flags])
    expect(found.code).toBe(1)
    expect(found.stdout).toMatch(
      new RegExp(`^check +where +problem\nkeys +.*${bus.namespace}:stray.* {2}.+\n1 finding`),
    )
    const json = await callCli(['fsck', '--json', ...flags])
    expect(json.code).toBe(1)
    expect(jsonLines(json.stdout)).toEqual([
      { check: 'keys', where: expect.stringContaining(':stray'), problem: expect.any(String) },
      { findings: 1, tookMs: expect.any(Number) },
    ])
    const shown = await callCli(['fsck', ...flags], { columns: 80 })
    expect(shown.stderr).toMatch(/checking {2}\d/)
  })
})

describe('config', () => {
  test('shows where each value comes from, and no password', async () => {
    const cwd = folder()
    writeFileSync(join(cwd, 'busbar.config.json'), '{ "http": { "port": 8080, "host": "::1" }, "namespace": "file" }')
    const args = ['config', '--redis', 'redis://me:hidden-word@example.test:1', '--namespace', 'flag']
    const options = { cwd, env: { BUSBAR_HTTP_PORT: '9090', BUSBAR_REDIS_URL: 'redis://:other-word@h' } }
    const table = await callCli(args, options)
    const json = await callCli([...args, '--json'], options)
    const values = new Map(jsonLines(json.stdout).map(({ name, value, source }) => [name, [value, source]]))
    expect(values.get('namespace')).toEqual(['flag', 'flag'])
    expect(values.get('http.port')).toEqual(['9090', 'environment'])
    expect(values.get('http.host')).toEqual(['::1', 'file'])
    expect(values.get('publish.timeout')).toEqual(['10s', 'default'])
    expect(values.get('redis')).toEqual(['redis://me:***@example.test:1', 'flag'])
    expect(table.stdout).toMatch(/^redis +flag +redis:\/\/me:\*\*\*@example\.test:1$/m)
    expect(table.stdout + json.stdout).not.toContain('-word')
    const lines = table.stdout.trim().split('\n')
    expect(new Set(lines.map((line) => line.search(/(default|file|environment|flag|source) /))).size).toBe(1)
  })
})

describe('how it ends', () => {
  const redisDown = ['--redis', 'redis://127.0.0.1:1', '--publish-timeout', '200ms']
  const refused = /connect ECONNREFUSED 127\.0\.0\.1:1\n$/

  test.each([
    ['no command', [], 2, /^Usage: busbar/],
    ['an unknown command', ['pubish'], 2, /^error USAGE: unknown command 'pubish' \(Did you mean publish\?\)\n$/],
    ['an unknown flag', ['topics', '--name-space', 'x'], 2, /^error USAGE: .* \(Did you mean --namespace\?\)\n$/],
    ['unusable settings', ['config', '--http-port', 'x', '--partitions', '0'], 2, /^error SETTING_INVALID: 2 settings/],
    ['no type', ['publish'], 2, /^error USAGE: give the type of the event, or --file\n$/],
    ['a type and a file', ['publish', 'a.b', '--file', 'x'], 2, /^error USAGE: give either a type or --file/],
    ['no such file', ['publish', '--file', 'no.jsonl'], 2, /^error PARAMETER_INVALID: .*ENOENT.*"no\.jsonl"/],
    ['no time', ['publish', 'a.b', '1', '--time', 'noon'], 2, /^error PARAMETER_INVALID: Parameter "time" must be/],
    ['no seq', ['publish', 'a.b', '1', '--expect-prev', 'x'], 2, /^error PARAMETER_INVALID: Parameter "expect-prev"/],
    ['no limit', ['tail', '--limit', '0'], 2, /^error PARAMETER_INVALID: Parameter "limit" must be/],
    ['a name for a verb', ['streams', 'regulars'], 2, /\(Did you mean busbar streams show regulars\?\)\n$/],
    ['a misspelt verb', ['streams', 'shwo', 'x'], 2, /\(Did you mean busbar streams show x\?\)\n$/],
    ['one argument more', ['streams', 'show', 'x', 'y'], 2, /^error USAGE: too many arguments/],
    ['no pattern', ['tail', 'a..b', ...redisDown], 2, /^error PATTERN_INVALID: /],
    ['Redis down, reading', ['topics', ...redisDown], 3, /^error REDIS_UNAVAILABLE: /],
    ['Redis down, the reason', ['topics', ...redisDown], 3, refused],
    ['Redis down, publishing', ['publish', 'a.b', '1', ...redisDown], 3, /^error NOT_STORED: /],
    ['Redis down, following', ['tail', ...redisDown], 3, /error REDIS_UNAVAILABLE: /],
  ])('%s', async (_, args, code, stderr) => {
    const ended = await callCli(args)
    expect(ended.stderr).toMatch(stderr)
    expect(ended).toMatchObject({ code, stdout: '' })
  })

  test('the exit code is that of the process', async () => {
    const ended = await runCli(['publish', 'a.b', '1', '--json', ...redisDown])
    expect(ended).toMatchObject({ code: 3, stdout: '' })
    expect(jsonLines(ended.stderr)).toMatchObject([{ error: { code: 'NOT_STORED', retryable: true } }])
  })

  test('[P14] refusals of the work, as JSON', async () => {
    const { bus, flags } = place()
    await bus.publish('a.b', 1)
    const end = async (...args: string[]) => {
      const { code, stdout, stderr } = await callCli([...args, '--json', ...flags])
      const [{ error }] = jsonLines(stderr) as [{ error: { code: string } }]
      return [code, error.code, stdout]
    }
    expect(await end('get', '0-1')).toEqual([1, 'EVENT_NOT_FOUND', ''])
    expect(await end('publish', 'not a type', '1')).toEqual([1, 'EVENT_INVALID', ''])
    expect(await end('publish', 'a.b', '{"half":')).toEqual([1, 'DATA_UNSERIALISABLE', ''])
    expect(await end('tail', '--since', '5x')).toEqual([2, 'PARAMETER_INVALID', ''])
    expect(await end('get', 'banana')).toEqual([2, 'PARAMETER_INVALID', ''])
    expect(await end('topics', '--partitions', '3')).toEqual([2, 'PARTITIONS_MISMATCH', ''])
    expect(await end('publish', 'a.b', '1', 'too many')).toEqual([2, 'USAGE', ''])
    expect(await stored(bus)).toHaveLength(1)
  })

  test('--version and --help answer on stdout', async () => {
    const version = await runCli(['--version'])
    expect(version).toMatchObject({ code: 0, stdout: expect.stringMatching(/^\d+\.\d+\.\d+\n$/), stderr: '' })
    const help = await callCli(['publish', '--help'])
    expect(help).toMatchObject({ code: 0, stderr: '' })
    expect(help.stdout).toContain('--idempotency-key <key>')
  })

  test('only debug shows a stack, and log lines leave stdout clean', async () => {
    const { bus, flags } = place()
    await bus.publish('a.b', 1)
    const quiet = await callCli(['get', '0-1', ...flags])
    expect(quiet.stderr.split('\n')).toHaveLength(2)
    const debug = await callCli(['get', '0-1', '--log-level', 'debug', ...flags])
    expect(debug.stderr).toMatch(/debug redis\.connected/)
    expect(debug.stderr).toMatch(/\n {4}at /)
    const json = await callCli(['topics', '--json', '--log-level', 'debug', ...flags])
    expect(jsonLines(json.stdout)).toEqual([{ topic: 'a', events: 1 }])
    expect(jsonLines(json.stderr)).toContainEqual(expect.objectContaining({ event: 'redis.connected' }))
  })
})

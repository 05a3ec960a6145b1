/** `busbar doctor`: what it finds on good and bad ground, and how it judges what tests cannot bring about. */
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import * as judge from '../src/cli/checkup.ts'
import type { ServerFacts } from '../src/redis/server.ts'
import { freshNamespace, redisUrl, testBus } from './support/bus.ts'
import { callCli, jsonLines, runCli } from './support/cli.ts'
import { freePort } from './support/ports.ts'
import { startRedis } from './support/redis.ts'

function folder(): string {
  const made = mkdtempSync(join(tmpdir(), 'busbar-doctor-'))
  onTestFinished(() => rmSync(made, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 }))
  return made
}

async function findings(args: string[]) {
  const { code, stdout, stderr } = await callCli(['doctor', '--json', '--data-dir', folder(), ...args])
  expect(stderr).toBe('')
  const found = jsonLines(stdout) as unknown as judge.Finding[]
  return { code, verdicts: Object.fromEntries(found.map(({ check, verdict }) => [check, verdict])), found }
}

describe('on real servers', () => {
  test('a good Redis', async () => {
    const server = await startRedis({ args: ['--maxmemory', '64mb'] })
    onTestFinished(() => server.stop())
    const { code, verdicts, found } = await findings(['--redis', server.url])
    const checks = [
      'node',
      'data folder',
      'redis',
      'version',
      'append-only file',
      'maxmemory',
      'memory',
      'namespace',
      'clock',
      'webhooks',
    ]
    expect(verdicts).toEqual(Object.fromEntries(checks.map((check) => [check, 'ok'])))
    expect(code).toBe(0)
    expect(found.find(({ check }) => check === 'append-only file')?.found).toBe('on, fsync everysec')
    expect(found.find(({ check }) => check === 'namespace')?.found).toBe('busbar, not there yet')
  })

  test('a Redis that evicts, has no append-only file and another partition count', async () => {
    const server = await startRedis({
      args: ['--maxmemory', '64mb', '--maxmemory-policy', 'allkeys-lru', '--appendonly', 'no'],
    })
    onTestFinished(() => server.stop())
    const bad = await runCli(['doctor', '--redis', server.url, '--data-dir', folder()])
    expect(bad.code).toBe(1)
    expect(bad.stdout).toMatch(/^fail {2}maxmemory {9}64MiB, allkeys-lru\n {24}Set "maxmemory-policy noeviction"/m)
    expect(bad.stdout).toMatch(/^warn {2}append-only file {2}off: .*\n {24}Set "appendonly yes"/m)
    const columns = bad.stdout.split('\n').filter((line) => /^(ok|warn|fail) /.test(line))
    expect(new Set(columns.map((line) => line.slice(4, 6) + line.slice(22, 24)))).toEqual(new Set(['    ']))

    const namespace = freshNamespace()
    await testBus({ namespace, partitions: 3 }).publish('a.b', 1)
    const other = await findings(['--redis', redisUrl(), '--namespace', namespace, '--partitions', '5'])
    expect(other.code).toBe(1)
    expect(other.found.find(({ check }) => check === 'namespace')).toEqual({
      ...{ check: 'namespace', verdict: 'fail', found: `${namespace}, 3 partitions, but the settings ask for 5` },
      remedy: 'Set partitions to 3, or use another namespace.',
    })
  })

  test('a Redis that is down, and one that does not tell', async () => {
    const down = await findings(['--redis', `redis://127.0.0.1:${await freePort()}`, '--publish-timeout', '200ms'])
    expect(down.code).toBe(1)
    expect(down.verdicts).toEqual({ node: 'ok', 'data folder': 'ok', redis: 'fail' })
    expect(down.found.at(-1)?.found).toContain('ECONNREFUSED')

    const server = await startRedis({ args: ['--rename-command', 'CONFIG', '', '--rename-command', 'TIME', ''] })
    onTestFinished(() => server.stop())
    const mute = await findings(['--redis', server.url])
    expect(mute.verdicts).toMatchObject({ 'append-only file': 'ok', maxmemory: 'warn', clock: 'warn' })
    expect(mute.code).toBe(0)
  })

  test('a data folder that cannot be used, and a token that others can read', async () => {
    const occupied = join(folder(), 'file')
    writeFileSync(occupied, '')
    // No Redis is started for a folder that cannot hold it.
    const unusable = await findings(['--data-dir', join(occupied, 'below')])
    expect(unusable.verdicts).toEqual({ node: 'ok', 'data folder': 'fail' })
    expect(unusable.code).toBe(1)

    const open = join(folder(), 'open')
    mkdirSync(open)
    writeFileSync(join(open, 'root-token'), 'secret')
    chmodSync(join(open, 'root-token'), 0o644)
    const shown = await findings(['--data-dir', open, '--redis', redisUrl()])
    expect(shown.found[1]).toMatchObject({ verdict: 'warn', remedy: `Run: chmod 600 ${open}/root-token` })
  })
})

describe('judgement', () => {
  const facts: ServerFacts = {
    software: 'redis',
    version: '7.0.0',
    appendOnly: true,
    maxMemoryBytes: 0,
    maxMemoryPolicy: 'noeviction',
    usedMemoryBytes: 2 ** 20,
  }
  const rules = { allow: [], allowHttp: false, development: false }
  const full = (share: number) =>
    judge.judgeMemory({ ...facts, maxMemoryBytes: 2 ** 30, usedMemoryBytes: share * 2 ** 30 })

  test.each([
    ['node too old', judge.judgeNode('20.18.3'), 'fail'],
    ['node just right', judge.judgeNode('20.19.0'), 'ok'],
    ['node newer', judge.judgeNode('24.0.0'), 'ok'],
    ['Redis too old', judge.judgeVersion({ ...facts, version: '6.2.14' }), 'fail'],
    ['Valkey', judge.judgeVersion({ ...facts, software: 'valkey', version: '8.0.1' }), 'ok'],
    ['never synced', judge.judgeAppendOnly(facts, 'no'), 'warn'],
    ['always synced', judge.judgeAppendOnly(facts, 'always'), 'ok'],
    [
      'would evict if it had a limit',
      judge.judgeLimit({ ...facts, maxMemoryPolicy: 'allkeys-lru' }, { embedded: false }),
      'warn',
    ],
    ['no limit', judge.judgeLimit(facts, { embedded: false }), 'warn'],
    ['no limit, embedded', judge.judgeLimit(facts, { embedded: true }), 'ok'],
    ['half full', full(0.5), 'ok'],
    ['nearly full', full(0.85), 'warn'],
    ['full', full(1), 'fail'],
    ['clocks apart', judge.judgeClock(-1_500), 'warn'],
    ['webhooks of a production', judge.judgeWebhooks(rules), 'ok'],
    ['webhooks of a development', judge.judgeWebhooks({ ...rules, development: true }), 'warn'],
    ['clocks together', judge.judgeClock(20), 'ok'],
  ])('%s', (_, finding, verdict) => {
    expect(finding.verdict).toBe(verdict)
    expect(finding.remedy === undefined).toBe(verdict === 'ok')
  })

  test('what is found is said in units', () => {
    expect(full(0.85).found).toBe('870MiB used, 85 % of the limit')
    expect(judge.judgeWebhooks({ ...rules, allow: ['10.0.0.0/8'] }).found).toBe(
      'may go to public addresses, 10.0.0.0/8, by https',
    )
    expect(judge.judgeClock(-1_500).found).toBe('Redis is 1500ms behind')
    expect(judge.judgeClock(2_000).found).toBe('Redis is 2s ahead')
  })
})

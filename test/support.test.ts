/** The test support keeps its own promises: servers, waiting, child processes. The proxy's are in support/proxy.test.ts. */
import { existsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import { afterAll, describe, expect, inject, onTestFinished, test } from 'vitest'
import { eventually } from './support/eventually.ts'
import { spawnNode } from './support/process.ts'
import { type RedisOptions, startRedis } from './support/redis.ts'
import { createSplitter, decodeReply } from './support/resp.ts'

const shared = new Redis(inject('redisUrl'))
afterAll(() => shared.disconnect())

async function ownServer(options: RedisOptions = {}) {
  const server = await startRedis(options)
  const redis = new Redis(server.url, { retryStrategy: () => 10 })
  redis.on('error', () => {})
  onTestFinished(async () => {
    redis.disconnect()
    await server.stop()
  })
  return { server, redis }
}

const isAlive = (pid: number) => {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

describe('the shared server', () => {
  test('is one and the same on its port and its socket, and keeps what it is given', async () => {
    const bySocket = new Redis({ path: inject('redisSocket') })
    await shared.set('support:place', 'here')
    expect(await bySocket.get('support:place')).toBe('here')
    bySocket.disconnect()
    expect(await shared.config('GET', 'appendonly')).toEqual(['appendonly', 'yes'])
    expect(await shared.config('GET', 'appendfsync')).toEqual(['appendfsync', 'everysec'])
    expect(await shared.config('GET', 'maxmemory-policy')).toEqual(['maxmemory-policy', 'noeviction'])
  })
})

describe('a server of its own', () => {
  test('comes back after SIGKILL with what it had answered, on the same port', async () => {
    const { server, redis } = await ownServer()
    const firstPid = server.pid
    await redis.set('kept', 'yes')
    await server.kill()
    expect(isAlive(firstPid)).toBe(false)
    await server.restart()
    expect(server.pid).not.toBe(firstPid)
    expect(await redis.get('kept')).toBe('yes')
  })

  test('comes back after an orderly restart', async () => {
    const { server, redis } = await ownServer()
    await redis.set('kept', 'yes')
    await server.restart()
    expect(await redis.get('kept')).toBe('yes')
  })

  test('without AOF it rolls back to its last save', async () => {
    const { server, redis } = await ownServer({ args: ['--appendonly', 'no'] })
    await redis.set('n', '1')
    await redis.save()
    await redis.set('n', '2')
    await server.kill()
    await server.restart()
    expect(await redis.get('n')).toBe('1')
  })

  test('answers nothing while paused, then everything', async () => {
    const { server, redis } = await ownServer()
    await redis.ping()
    server.pause()
    let answered = false
    const answer = redis.incr('n').finally(() => {
      answered = true
    })
    await expect(eventually(() => answered, { timeoutMs: 50 })).rejects.toThrow('did not come true')
    server.resume()
    expect(await answer).toBe(1)
  })

  test('refuses writes when its memory is full', async () => {
    const { redis } = await ownServer({ args: ['--maxmemory', '1mb'] })
    await expect(redis.set('big', 'x'.repeat(2_000_000)).then(() => redis.set('more', 'x'))).rejects.toThrow('OOM')
  })

  test('stop removes its folder, but not one that it was given', async () => {
    const dir = await mkdtemp(join(tmpdir(), 'busbar-given-'))
    const given = await startRedis({ dir })
    const own = await startRedis()
    await Promise.all([given.stop(), own.stop()])
    expect([existsSync(dir), existsSync(own.dir)]).toEqual([true, false])
    expect([isAlive(given.pid), isAlive(own.pid)]).toEqual([false, false])
    await rm(dir, { recursive: true })
  })

  test('says why it does not start', async () => {
    await expect(startRedis({ args: ['--no-such-setting', '1'] })).rejects.toThrow(/did not start/)
    await expect(startRedis({ port: Number(new URL(inject('redisUrl')).port) })).rejects.toThrow(
      'Address already in use',
    )
  })
})

describe('eventually', () => {
  test('returns the first truthy value', async () => {
    let n = 0
    expect(await eventually(() => (n++ < 3 ? null : `after ${n}`), { everyMs: 1 })).toBe('after 4')
  })

  test('passes when assertions no longer throw', async () => {
    let n = 0
    const assertions = () => {
      expect(n++).toBe(3)
    }
    await eventually(assertions, { everyMs: 1 })
    expect(n).toBe(4)
  })

  test('names what did not come true and the last reason, and keeps the error as cause', async () => {
    const cause = new Error('still 2 of 3')
    const waiting = eventually(() => Promise.reject(cause), { timeoutMs: 30, what: 'A third delivery' })
    const failure: Error = await waiting.then(expect.unreachable, (error) => error)
    expect(failure.message).toMatch(/^A third delivery did not come true within 30 ms \(\d+ tries\): still 2 of 3$/)
    expect(failure.cause).toBe(cause)
    await expect(eventually(() => 0, { timeoutMs: 5 })).rejects.toThrow('the check returned 0')
  })

  test('ends in time although the check hangs', async () => {
    const hanging = eventually(() => new Promise<boolean>(() => {}), { timeoutMs: 20 })
    await expect(hanging).rejects.toThrow('the check has not returned')
  })

  test('does not take a check that would pass by finding nothing', () => {
    const lines: string[] = []
    // @ts-expect-error: undefined would pass
    const vacuous = () => eventually(() => lines.find((line) => line === 'ready'))
    expect(vacuous).toBeTypeOf('function')
  })
})

describe('a child process', () => {
  const counter = (key: string, env: Record<string, string> = {}) =>
    spawnNode('counter.mjs', { args: [inject('redisUrl'), key], env })

  test('prints, is spoken to, and exits', async () => {
    const child = counter('support:plain')
    await child.waitForLine('ready')
    child.send('incr')
    child.send('incr')
    expect(await child.waitForLine(/^value/)).toBe('value 1')
    expect(await child.waitForLine(/^value/)).toBe('value 2')
    expect(child.stdout).toEqual(['ready', 'value 1', 'value 2'])
    child.kill('SIGTERM')
    expect(await child.exited).toEqual({ code: null, signal: 'SIGTERM' })
  })

  test('kills itself at a failpoint, before or after the effect', async () => {
    const before = counter('support:before', { FAILPOINT: 'before-incr' })
    const after = counter('support:after', { FAILPOINT: 'after-incr:2' })
    for (const child of [before, after]) {
      child.send('incr')
      child.send('incr')
    }
    await before.hitFailpoint('before-incr')
    await after.hitFailpoint('after-incr')
    expect(await before.exited).toEqual({ code: null, signal: 'SIGKILL' })
    expect(await shared.mget('support:before', 'support:after')).toEqual([null, '2'])
    expect(after.stdout).toEqual(['ready', 'value 1', 'failpoint after-incr'])
  })

  test('stops itself at a failpoint and goes on when it is woken', async () => {
    const child = counter('support:stop', { FAILPOINT: 'before-incr', FAILPOINT_SIGNAL: 'SIGSTOP' })
    child.send('incr')
    await child.hitFailpoint('before-incr')
    expect(await shared.get('support:stop')).toBeNull()
    child.kill('SIGCONT')
    await child.waitForLine('value 1')
  })

  test('that dies instead of printing says so, with its last words', async () => {
    const child = counter('support:dying')
    child.send('fail')
    await expect(child.waitForLine('value 1')).rejects.toThrow(/exited with \{"code":1.*asked to fail/s)
  })
})

describe('RESP', () => {
  const frames = [
    '+OK\r\n',
    '-ERR no\r\n',
    ':-1\r\n',
    '$-1\r\n',
    '*-1\r\n',
    '$5\r\na\r\nb\r\r\n',
    '*2\r\n*1\r\n:7\r\n$0\r\n\r\n',
    '_\r\n',
    '#t\r\n',
    ',1.5\r\n',
    '(12345678901234567890\r\n',
    '=7\r\ntxt:abc\r\n',
    '!6\r\nERR no\r\n',
    '%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n_\r\n',
    '~1\r\n+x\r\n',
    '>2\r\n+message\r\n+x\r\n',
    '|1\r\n+ttl\r\n:3\r\n:9\r\n',
  ]
  const values = frames.map((frame) => decodeReply(Buffer.from(frame)))

  test.each([1, 2, 3, 7, 1_000])('is cut into its frames from chunks of %d bytes', (size) => {
    const bytes = Buffer.from(frames.join(''))
    const split = createSplitter()
    const found: string[] = []
    for (let at = 0; at < bytes.length; at += size) found.push(...split(bytes.subarray(at, at + size)).map(String))
    expect(found).toEqual(frames)
  })

  test('is decoded to the shapes of RESP2', () => {
    const no = new Error('ERR no')
    const nested = [[7], '']
    const map = ['a', 1, 'b', [null]]
    const numbers = [1, '1.5', '12345678901234567890']
    const expected = ['OK', no, -1, null, null, 'a\r\nb\r', nested, null, ...numbers, 'abc', no, map, ['x']]
    expect(values).toEqual([...expected, ['message', 'x'], 9])
  })
})

import { spawnSync } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { cp, mkdtemp, rm, truncate } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { Redis } from 'ioredis'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type EmbeddedOptions, type EmbeddedRedis, openEmbeddedRedis } from '../src/redis/embedded.ts'
import { prepareFolder } from '../src/redis/embedded-folder.ts'
import { holdServer } from '../src/redis/embedded-hold.ts'
import { createTelemetry } from '../src/runtime/telemetry.ts'
import { eventually } from './support/eventually.ts'
import { type Child, spawnNode } from './support/process.ts'
import { startRedis } from './support/redis.ts'

const userScript = new URL('./support/embedded-user.mjs', import.meta.url)

let dataDir: string
let files: string
let toRelease: EmbeddedRedis[]
const telemetry = createTelemetry(Date.now)

beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'busbar-embedded-'))
  files = join(dataDir, 'redis')
  toRelease = []
})

afterEach(async () => {
  await Promise.all(toRelease.map((embedded) => embedded.release()))
  for (const { pid } of processesOf(dataDir)) kill(pid)
  await nothingRuns()
  // A server that was killed a moment ago may still be writing.
  await rm(dataDir, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 })
})

async function open(options: Partial<EmbeddedOptions> = {}): Promise<EmbeddedRedis> {
  const embedded = await openEmbeddedRedis({ dataDir, telemetry, ...options })
  toRelease.push(embedded)
  return embedded
}

function startUser(): Child {
  return spawnNode(userScript, { args: [dataDir] })
}

async function opened(user: Child): Promise<EmbeddedRedis> {
  return JSON.parse((await user.waitForLine(/^open /)).slice('open '.length))
}

async function ask<T>({ socketPath }: { socketPath: string }, question: (redis: Redis) => Promise<T>): Promise<T> {
  const redis = new Redis({ path: socketPath, retryStrategy: () => 10 })
  redis.on('error', () => {})
  try {
    return await question(redis)
  } finally {
    redis.disconnect()
  }
}

/** The keeper, Redis and the shell between them, found by the folder in their command lines; users are not among them. */
function processesOf(folder: string): { pid: number; name: 'keeper' | 'redis' | 'shell' }[] {
  return readdirSync('/proc').flatMap((pid) => {
    const command = commandOf(pid)
    if (!command.includes(folder) || command.includes('embedded-user.mjs')) return []
    const name = command.includes('embedded-keeper.mjs') ? 'keeper' : command.startsWith('/bin/sh') ? 'shell' : 'redis'
    return [{ pid: Number(pid), name }]
  })
}

function commandOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8')
  } catch {
    return ''
  }
}

const pidsOf = (name: string) => processesOf(dataDir).flatMap((found) => (found.name === name ? [found.pid] : []))
const nothingRuns = () => eventually(() => processesOf(dataDir).length === 0, { what: 'The end of every process' })
const modeOf = (path: string) => (statSync(path).mode & 0o777).toString(8)

function kill(pid: number, signal: NodeJS.Signals = 'SIGKILL'): void {
  try {
    process.kill(pid, signal)
  } catch {}
}

describe('private', () => {
  test('[H14] the embedded Redis has a private socket, no port, and an append-only file', async () => {
    const fresh = join(dataDir, 'with a space/büsbar')
    const embedded = await open({ dataDir: fresh, maxMemoryBytes: 64 * 1024 * 1024 })

    const config = await ask(embedded, (redis) => redis.config('GET', '*'))
    const settings = Object.fromEntries(pairs(config as string[]))
    expect(settings).toMatchObject({
      port: '0',
      appendonly: 'yes',
      appendfsync: 'everysec',
      save: '',
      dir: join(fresh, 'redis'),
      maxmemory: String(64 * 1024 * 1024),
      'maxmemory-policy': 'noeviction',
      'aof-load-truncated': 'yes',
      'enable-protected-configs': 'no',
    })
    expect(embedded.socketPath.startsWith(fresh)).toBe(true)
    expect([fresh, dirname(embedded.socketPath), embedded.socketPath].map(modeOf)).toEqual(['700', '700', '700'])
    const aofFiles = readdirSync(join(fresh, 'redis/appendonlydir'))
    expect(new Set(aofFiles.map((name) => modeOf(join(fresh, 'redis/appendonlydir', name))))).toEqual(new Set(['600']))
  })

  test('[H14] an existing data folder keeps its mode, what is inside is closed', async () => {
    chmodSync(dataDir, 0o755)
    mkdirSync(files, { mode: 0o777 })
    await open()
    expect([dataDir, files].map(modeOf)).toEqual(['755', '700'])
  })

  test('[H14] a folder too deep for a socket gets one in a private short folder, shared all the same', async () => {
    const deep = join(dataDir, 'x'.repeat(60), 'y'.repeat(60))
    const one = await open({ dataDir: deep })
    const two = await open({ dataDir: deep })
    expect(two).toMatchObject({ socketPath: one.socketPath, shared: true })
    expect(Buffer.byteLength(one.socketPath)).toBeLessThan(104)
    expect(modeOf(dirname(one.socketPath))).toBe('700')
    expect(await ask(one, (redis) => redis.set('a', 1))).toBe('OK')

    await one.release()
    await two.release()
    chmodSync(dirname(one.socketPath), 0o755)
    await expect(open({ dataDir: deep })).rejects.toMatchObject({ code: 'REDIS_NOT_STARTED' })
    await rm(dirname(one.socketPath), { recursive: true })
  })

  test('[H14] the keeper is in a session of its own, and a signal to all but the users leaves them with a Redis', async () => {
    const embedded = await open()
    await ask(embedded, (redis) => redis.set('a', 1))
    const [keeper] = pidsOf('keeper')
    const [redisPid] = pidsOf('redis')
    const session = readFileSync(`/proc/${keeper}/stat`, 'utf8').split(') ')[1]!.split(' ')[3]
    expect(Number(session)).toBe(keeper)

    for (const { pid } of processesOf(dataDir)) kill(pid, 'SIGTERM')
    await eventually(() => pidsOf('redis').some((pid) => pid !== redisPid))
    expect(await ask(embedded, (redis) => redis.get('a'))).toBe('1')
  })
})

describe('shared', () => {
  test('[H14] data survives a restart, and nothing runs after the last release', async () => {
    const first = await open()
    expect(first.shared).toBe(false)
    await ask(first, (redis) => redis.set('kept', 'yes'))
    await first.release()
    expect(processesOf(dataDir).filter(({ name }) => name === 'redis')).toEqual([])
    expect(existsSync(first.socketPath)).toBe(false)
    await nothingRuns()

    const second = await open()
    expect(second).toMatchObject({ shared: false, socketPath: first.socketPath })
    expect(await ask(second, (redis) => redis.get('kept'))).toBe('yes')
  })

  test('[H14] a second process shares the running server, which stops with the last user', async () => {
    const one = startUser()
    const two = await opened(one).then(() => startUser())
    expect(await opened(two)).toMatchObject({ shared: true })
    const server = pidsOf('redis')
    expect(server).toHaveLength(1)

    one.send('release')
    expect(await one.waitForLine(/^released/)).toBe('released redis.embedded-started')
    expect(await one.exited).toEqual({ code: 0, signal: null })
    expect(pidsOf('redis')).toEqual(server)

    two.send('release')
    expect(await two.waitForLine(/^released/)).toBe('released redis.embedded-shared,redis.embedded-stopped')
    expect(await two.exited).toEqual({ code: 0, signal: null })
    await nothingRuns()
  })

  test('[H14] processes that start at the same instant get one server', async () => {
    const users = [startUser(), startUser(), startUser(), startUser()]
    const handles = await Promise.all(users.map(opened))
    expect(handles.filter(({ shared }) => !shared)).toHaveLength(1)
    expect(pidsOf('redis')).toHaveLength(1)
    await eventually(() => pidsOf('keeper').length === 1, { what: 'The end of the keepers that came too late' })
    const ids = await Promise.all(handles.map((handle) => ask(handle, (redis) => redis.info('server'))))
    expect(new Set(ids.map((info) => /run_id:(\w+)/.exec(info)?.[1])).size).toBe(1)
  })

  test('[H14] a user that comes while the last one leaves always gets a server that stays', async () => {
    const rounds = 3
    const comeAndGo = async () => {
      for (let round = 0; round < rounds; round += 1) {
        const embedded = await open()
        await ask(embedded, (redis) => redis.incr('rounds'))
        await embedded.release()
      }
    }
    await Promise.all([comeAndGo(), comeAndGo()])
    expect(await ask(await open(), (redis) => redis.get('rounds'))).toBe(String(2 * rounds))
  })

  test('[H14] releasing twice is releasing once', async () => {
    const kept = await open()
    const other = await open()
    await Promise.all([other.release(), other.release()])
    expect(await ask(kept, (redis) => redis.ping())).toBe('PONG')
  })
})

describe('after a kill', () => {
  test('[H14] the server stops when its only user is killed', async () => {
    const user = startUser()
    const handle = await opened(user)
    await ask(handle, (redis) => redis.set('kept', 'yes'))
    user.kill()
    await nothingRuns()
    expect(await ask(await open(), (redis) => redis.get('kept'))).toBe('yes')
  })

  test('[H14] a user killed while the server starts leaves nothing behind', async () => {
    const user = startUser()
    await eventually(() => pidsOf('keeper').length > 0)
    user.kill()
    await nothingRuns()
    expect((await open()).shared).toBe(false)
  })

  test('[H14] after a kill of everything the next start recovers', async () => {
    const user = startUser()
    const handle = await opened(user)
    await ask(handle, (redis) => redis.set('kept', 'yes'))
    for (const { pid } of [...processesOf(dataDir), user]) kill(pid)
    await nothingRuns()
    expect(readdirSync(files)).toContain('redis.sock')
    expect(readdirSync(files).filter((name) => name.startsWith('keeper-'))).toHaveLength(1)

    const next = await open()
    expect(next.shared).toBe(false)
    expect(await ask(next, (redis) => redis.get('kept'))).toBe('yes')
    expect(readdirSync(files).filter((name) => name.startsWith('keeper-'))).toHaveLength(1)
  })

  test('[H14] a server killed alone comes back under its users', async () => {
    const embedded = await open()
    await ask(embedded, (redis) => redis.set('kept', 'yes'))
    const [killed] = pidsOf('redis')
    kill(killed!)
    await eventually(() => pidsOf('redis').some((pid) => pid !== killed))
    expect(await ask(embedded, (redis) => redis.get('kept'))).toBe('yes')
  })

  test('[H14] a keeper killed alone takes the server with it, and a user that is left brings both back', async () => {
    const embedded = await open()
    await ask(embedded, (redis) => redis.set('kept', 'yes'))
    const [killed] = pidsOf('redis')
    kill(pidsOf('keeper')[0]!)
    await eventually(() => !pidsOf('redis').includes(killed!))
    await eventually(() => pidsOf('redis').length === 1)
    expect(await ask(embedded, (redis) => redis.get('kept'))).toBe('yes')
  })

  test('[H14] a keeper and its users killed together take the server with them', async () => {
    const user = startUser()
    await opened(user)
    for (const pid of [...pidsOf('keeper'), user.pid]) kill(pid)
    await nothingRuns()
  })

  test('[H14] a server that is all that is left is shut down by the next start, which gets its data', async () => {
    const user = startUser()
    await ask(await opened(user), (redis) => redis.set('kept', 'yes'))
    for (const pid of [...pidsOf('shell'), ...pidsOf('keeper'), user.pid]) kill(pid)
    await eventually(() => processesOf(dataDir).length === 1)
    const orphan = pidsOf('redis')

    const place = prepareFolder(dataDir)
    const path = process.env.PATH ?? ''
    const options = { place, path, environment: process.env, maxMemoryBytes: 0, silenceMs: 1_000 }
    const hold = await holdServer(options, new AbortController().signal, () => {})
    expect(pidsOf('redis')).not.toEqual(orphan)
    expect(await ask({ socketPath: place.redisSocket }, (redis) => redis.get('kept'))).toBe('yes')
    expect(await hold.release()).toBe(true)
  })
})

describe('a torn append-only file', () => {
  /** Leaves a file that ends inside the third script's MULTI, in the middle of its third command. */
  async function tear(): Promise<void> {
    const user = startUser()
    await ask(await opened(user), async (redis) => {
      const script = "for i = 1, 4 do redis.call('SET', KEYS[1] .. i, 'x') end"
      for (const key of ['first:', 'second:', 'third:']) await redis.eval(script, 1, key)
    })
    // While the disk is being waited for, Redis answers first and writes up to two seconds later.
    const incr = () => join(files, 'appendonlydir', incrFiles().at(-1)!)
    await eventually(() => {
      const content = readFileSync(incr())
      return content.includes('third:4') && content.includes('EXEC', content.indexOf('third:4'))
    })
    for (const { pid } of [...processesOf(dataDir), user]) kill(pid)
    await nothingRuns()
    await truncate(incr(), readFileSync(incr()).indexOf('third:3') + 2)
  }

  const incrFiles = () =>
    readdirSync(join(files, 'appendonlydir'))
      .filter((name) => name.endsWith('.incr.aof'))
      .sort()

  const writeLater = (redis: Redis) => redis.mset('later', '1', 'latest', '2')
  const readLater = (redis: Redis) => redis.mget('first:4', 'second:4', 'third:1', 'later', 'latest')

  test('[H14] writes after a torn tail are there after the second restart', async () => {
    await tear()
    const first = await open()
    expect(await ask(first, readLater)).toEqual(['x', 'x', null, null, null])
    await ask(first, writeLater)
    await first.release()

    const second = await open()
    expect(await ask(second, readLater)).toEqual(['x', 'x', null, '1', '2'])
  })

  test('[H14] without the rewrite they would be lost', async () => {
    await tear()
    const dir = join(dataDir, 'control')
    await cp(join(files, 'appendonlydir'), join(dir, 'appendonlydir'), { recursive: true })
    const control = await startRedis({ dir })
    try {
      await ask(control, writeLater)
      expect(await ask(control, readLater)).toEqual(['x', 'x', null, '1', '2'])
      await control.restart()
      expect(await ask(control, readLater)).toEqual(['x', 'x', null, null, null])
    } finally {
      await control.stop()
    }
  })

  test('[H14] a kill during that rewrite does not lock the data out', async () => {
    await tear()
    // As a killed rewrite leaves it: the manifest names a next file, still empty, after the torn one.
    const torn = await startRedis({ dir: files })
    await torn.stop()
    const next = incrFiles().at(-1)!.replace('.1.', '.2.')
    const manifest = join(files, 'appendonlydir/appendonly.aof.manifest')
    writeFileSync(manifest, `file ${next} seq 2 type i\n`, { flag: 'a' })
    writeFileSync(join(files, 'appendonlydir', next), '')
    writeFileSync(join(files, 'appendonlydir/temp-rewriteaof-bg-1.aof'), 'half')

    expect(await ask(await open(), readLater)).toEqual(['x', 'x', null, null, null])
    expect(readFileSync(join(files, 'redis.log'), 'utf8')).toContain('truncated file is not the last')
    expect(readdirSync(join(files, 'appendonlydir')).filter((name) => name.startsWith('temp-'))).toEqual([])
  })
})

describe('refused', () => {
  test('[H14] without a server the error has the install line for each system', async () => {
    const empty = join(dataDir, 'bin')
    mkdirSync(empty)
    const error = await open({ path: empty }).catch((caught) => caught)
    expect(error.code).toBe('REDIS_NOT_INSTALLED')
    for (const line of [
      'apt-get install -y redis-server',
      'dnf install -y redis',
      'apk add redis',
      'brew install redis',
    ])
      expect(error.message).toContain(line)
  })

  test('[H14] a server that is too old is refused, unless another one is not', async () => {
    const old = join(dataDir, 'old')
    fakeServer(old, 'redis-server', 'Redis server v=6.2.0 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64')
    const error = await open({ path: old }).catch((caught) => caught)
    expect(error.code).toBe('REDIS_UNSUITABLE')
    expect(error.message).toContain(`${join(old, 'redis-server')} is version 6.2.0; 7.0 or newer is needed`)

    await expect(open({ path: `${old}:${process.env.PATH}` })).resolves.toMatchObject({ shared: false })
  })

  test('[H14] a server that cannot load its data says why, and is not left running', async () => {
    await (await open()).release()
    writeFileSync(join(files, 'appendonlydir/appendonly.aof.1.incr.aof'), 'this is no AOF\n')
    const error = await open().catch((caught) => caught)
    expect(error).toMatchObject({ code: 'REDIS_NOT_STARTED', details: { log: join(files, 'redis.log') } })
    expect(error.message).toContain('Bad file format reading the append only file')
    await nothingRuns()
  })

  test('[H14] a data folder that cannot be one is named', async () => {
    const file = join(dataDir, 'file')
    writeFileSync(file, '')
    const error = await open({ dataDir: file }).catch((caught) => caught)
    expect(error.code).toBe('REDIS_NOT_STARTED')
    expect(error.message).toContain(file)
  })

  test('[H14] the log is put aside when it has grown large', async () => {
    mkdirSync(files, { recursive: true })
    writeFileSync(join(files, 'redis.log'), 'x'.repeat(1024 * 1024 + 1))
    await open()
    expect(statSync(join(files, 'redis.log')).size).toBeLessThan(10_000)
    expect(statSync(join(files, 'redis.log.1')).size).toBeGreaterThan(1024 * 1024)
  })
})

function fakeServer(folder: string, name: string, version: string): void {
  mkdirSync(folder)
  writeFileSync(join(folder, name), `#!/bin/sh\necho '${version}'\n`, { mode: 0o755 })
  expect(spawnSync(join(folder, name), { encoding: 'utf8' }).stdout.trim()).toBe(version)
}

function* pairs(flat: readonly string[]): Iterable<[string, string]> {
  for (let at = 0; at < flat.length; at += 2) yield [flat[at]!, flat[at + 1]!]
}

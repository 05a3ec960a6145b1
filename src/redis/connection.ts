/**
 * One Redis connection that never repeats a command by itself.
 *
 * ioredis resends what had no answer when a connection breaks, and queues what is asked while there is none; both turn
 * one publish into two. Here a command whose connection breaks fails, and whoever sent it decides (publish repeats its
 * flush under the same number; reads simply ask again).
 *
 *   opening   connecting or reconnecting; commands fail at once, `whenReady` waits
 *   ready     commands are sent
 *   closed    for good
 */
import { Redis, type RedisOptions } from 'ioredis'
import { BusbarError } from '../errors.ts'
import type { Clock } from '../runtime/clock.ts'
import type { Telemetry } from '../runtime/telemetry.ts'

export interface Connection {
  readonly redis: Redis
  readonly isReady: boolean
  /** What last kept it from being ready. */
  readonly problem: string
  /** Resolves when commands can be sent; REDIS_UNAVAILABLE after the timeout. */
  whenReady(timeoutMs: number): Promise<void>
  onReady(listener: () => void): () => void
  close(): void
}

export interface ConnectionContext {
  clock: Clock
  telemetry: Telemetry
}

// After this long without a byte the server is asked for a sign of life; after as long again the peer is dead, though TCP
// has not noticed: cut, reconnect, decide again. That is 5 to 7.5 s, less than the 10 s a publish has by default.
const silenceMs = 2_500
// Well below the shortest expiry that makes sense: who comes back late from an absence of Redis is taken for dead.
const maxReconnectMs = 500

/** Accepts redis://, rediss:// and unix:///path/to/socket?db=1. */
export function redisOptions(url: string): RedisOptions {
  const parsed = new URL(url)
  const tls = parsed.protocol === 'rediss:'
  const login = {
    ...(parsed.username ? { username: decodeURIComponent(parsed.username) } : {}),
    ...(parsed.password ? { password: decodeURIComponent(parsed.password) } : {}),
  }
  if (parsed.protocol === 'unix:')
    return { path: decodeURIComponent(parsed.pathname), db: Number(parsed.searchParams.get('db') ?? 0), ...login }
  return {
    host: parsed.hostname.replace(/^\[|\]$/g, '') || '127.0.0.1',
    port: Number(parsed.port || 6379),
    db: Number(parsed.pathname.slice(1) || 0),
    ...login,
    ...(tls ? { tls: {} } : {}),
  }
}

export function connect(context: ConnectionContext, url: string, role: string): Connection {
  const { clock, telemetry } = context
  let closed = false
  let problem = 'no connection yet'
  let isReplica = false
  const options: RedisOptions = {
    ...redisOptions(url),
    maxRetriesPerRequest: 0,
    enableOfflineQueue: false,
    // hints.ts does it: when ioredis does and the connection breaks again, nobody catches the failure and the process ends.
    autoResubscribe: false,
    connectTimeout: 5_000,
    // While Redis loads its file it is asked again so often; the library's own second is long for whoever has a heartbeat to give.
    maxLoadingRetryTime: 100,
    // ioredis lets a timer of this length keep the process alive after a disconnect from a server that is not there.
    disconnectTimeout: 100,
    disableClientInfo: true,
    // Each new connection would be left as quickly as it is made, for as long as the address leads to the replica.
    retryStrategy: (times) => reconnectMs(isReplica ? Number.POSITIVE_INFINITY : times),
    // Asked about every error. Redis keeps connections when it is demoted: only a new one leads to where the primary is now.
    reconnectOnError({ message }) {
      // One farewell is enough: the library gives each its own timer and listener.
      if (!replicaSays.test(message) || !redis.stream.writable) return false
      isReplica = true
      problem = message
      return true
    },
  }
  const redis = new Redis({ ...options, replyMapping: 'legacy' })
  redis.on('error', (error: Error) => {
    problem = error.message
  })
  redis.on('connect', () => watchForSilence(redis, clock))
  let reported = false
  redis.on('ready', () => {
    isReplica = false
    reported = false
    telemetry.emit('redis.connected', { connection: role })
  })
  // Once per loss, not once per try to get it back.
  redis.on('close', () => {
    if (!reported && !closed) telemetry.emit('redis.lost', { connection: role, problem })
    reported = true
  })

  return {
    redis,
    get isReady() {
      return redis.status === 'ready'
    },
    get problem() {
      return problem
    },
    whenReady(timeoutMs) {
      if (redis.status === 'ready') return Promise.resolve()
      return new Promise((resolve, reject) => {
        const done = () => {
          timer.cancel()
          redis.off('ready', done)
          resolve()
        }
        const timer = clock.after(timeoutMs, () => {
          redis.off('ready', done)
          reject(BusbarError.of('REDIS_UNAVAILABLE', { problem }))
        })
        redis.on('ready', done)
      })
    },
    onReady(listener) {
      redis.on('ready', listener)
      return () => redis.off('ready', listener)
    },
    close() {
      closed = true
      redis.disconnect()
    },
  }
}

const reconnectMs = (times: number): number => Math.min(25 * 2 ** times, maxReconnectMs) * (0.5 + Math.random())

/** Looks at what was heard, not at the socket's own timer: that one starts anew with everything that is written. */
function watchForSilence(redis: Redis, clock: Clock): void {
  const { stream } = redis
  let heard = true
  let asked = false
  let timer = clock.after(silenceMs, lookSoon)
  stream.on('data', () => {
    heard = true
  })
  stream.once('close', () => timer.cancel())

  // A process that was paused hears what lies there first.
  function lookSoon(): void {
    setImmediate(look)
  }

  function look(): void {
    if (stream.destroyed) return
    if (!heard && asked) return void stream.destroy()
    asked = !heard
    heard = false
    if (asked) redis.ping().catch(() => undefined)
    timer = clock.after(silenceMs, lookSoon)
  }
}

const lostConnection =
  /^(Connection is closed|Stream isn't writeable|Reached the max retries per request|Command aborted)/
const replicaSays = /^(READONLY|MASTERDOWN)\b/
const notNow = /^(LOADING|READONLY|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|BUSY|MISCONF|NOREPLICAS|UNBLOCKED)\b/

/** A lost connection, or a server that is not ready: the same command may succeed later. */
export function mayPass(error: unknown): boolean {
  if (error instanceof BusbarError) return error.code === 'REDIS_UNAVAILABLE'
  if (!(error instanceof Error)) return false
  return error.name === 'ReplyError'
    ? notNow.test(error.message)
    : lostConnection.test(error.message) || 'syscall' in error
}

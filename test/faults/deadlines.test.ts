/** At its deadline a publish says what it knows: never sent is NOT_STORED, for good; sent and not answered is unknown. */
import { describe, expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import { eventually } from '../support/eventually.ts'
import { spawnNode } from '../support/process.ts'
import { Ledger } from './ledger.ts'
import {
  type FaultyPlace,
  faultyPlace,
  isPublish,
  loseRedis,
  publishAtRandom,
  type Random,
  randomFrom,
} from './storm.ts'

interface Outcome {
  code: string | undefined
  tookMs: number
}

const publish = (bus: Bus, data: string, timeout: number): Promise<Outcome> => {
  const startedAt = performance.now()
  const outcome = (code?: string) => ({ code, tookMs: performance.now() - startedAt })
  return bus.publish('order.paid', data, { key: 'order:1', timeout }).then(
    () => outcome(),
    (error) => outcome(error.code),
  )
}

async function connected(place: FaultyPlace): Promise<Bus> {
  const bus = place.bus()
  await bus.publish('warm.up', 'warm', { key: 'order:1' })
  return bus
}

/** Resolves when the bus has sent one more flush. */
async function flushed(
  { proxy }: FaultyPlace,
  publishOne: () => Promise<Outcome>,
): Promise<{ outcome: Promise<Outcome> }> {
  const before = proxy.count('EVALSHA')
  const outcome = publishOne()
  await eventually(() => proxy.count('EVALSHA') > before)
  return { outcome }
}

/** What is there once everything has passed, in order. */
async function storedAfter(place: FaultyPlace, bus: Bus): Promise<unknown[]> {
  await bus.publish('order.closed', 'closed', { key: 'order:1', timeout: 20_000 })
  await place.quiet()
  return (await place.log()).map(({ json }) => JSON.parse(json)).filter((data) => data !== 'warm')
}

describe('what was never sent', () => {
  test('[P25] no connection yet, or lost: NOT_STORED at the deadline, retryable; those with more time wait and go on', async () => {
    const place = await faultyPlace()
    place.proxy.refuse()
    const early = place.bus()
    const before = [publish(early, 'first', 20_000), publish(early, 'short', 50), publish(early, 'second', 20_000)]
    expect((await before[1])?.code).toBe('NOT_STORED')
    await place.proxy.accept()
    expect(await Promise.all(before)).toMatchObject([{ code: undefined }, { code: 'NOT_STORED' }, { code: undefined }])

    await loseRedis(place.proxy, early)
    const after = [publish(early, 'third', 20_000), publish(early, 'brief', 50), publish(early, 'fourth', 20_000)]
    const brief = await after[1]!
    expect(brief.code).toBe('NOT_STORED')
    // Later than the deadline by one sweep, and what a busy machine adds; far from the 20 s of its neighbours.
    expect(brief.tookMs).toBeGreaterThan(49)
    expect(brief.tookMs).toBeLessThan(2_000)
    const error = await early.publish('order.paid', 'told', { timeout: 10 }).catch((refusal) => refusal)
    expect(error).toMatchObject({ code: 'NOT_STORED', status: 503, retryable: true })
    await place.proxy.accept()
    await Promise.all(after)
    expect(await storedAfter(place, early)).toEqual(['first', 'second', 'third', 'fourth', 'closed'])
  })

  test('[P25] behind a flush without an answer: NOT_STORED, and it never comes', async () => {
    const place = await faultyPlace({ partitions: 1 })
    const bus = await connected(place)
    place.server.pause()
    const { outcome: flying } = await flushed(place, () => publish(bus, 'flying', 20_000))
    const waiting = publish(bus, 'waiting', 50)
    const patient = publish(bus, 'patient', 20_000)
    expect((await waiting).code).toBe('NOT_STORED')
    place.server.resume()
    expect([(await flying).code, (await patient).code]).toEqual([undefined, undefined])
    expect(await storedAfter(place, bus)).toEqual(['flying', 'patient', 'closed'])
  })
})

describe('what was sent', () => {
  test('[P25] no answer at the deadline: OUTCOME_UNKNOWN, which is not "failed"; those with more time get theirs', async () => {
    const place = await faultyPlace({ partitions: 1 })
    const bus = await connected(place)
    place.server.pause()
    const long = publish(bus, 'long', 20_000)
    const short = bus.publish('order.paid', 'short', { key: 'order:1', timeout: 50 }).catch((error) => error)
    expect(await short).toMatchObject({ code: 'OUTCOME_UNKNOWN', status: 504, retryable: true })
    expect((await short).message).toContain('may be stored or not')
    expect(bus.telemetry.counts().get('publish.unknown')).toBe(1)
    place.server.resume()
    expect((await long).code).toBeUndefined()
    expect(await storedAfter(place, bus)).toEqual(['long', 'short', 'closed'])
  })

  test('[P25] closing while Redis is away: every call gets its outcome, and what was not stored never is', async () => {
    const place = await faultyPlace({ partitions: 1 })
    const bus = await connected(place)
    place.proxy.stall()
    const { outcome: sent } = await flushed(place, () => publish(bus, 'sent', 20_000))
    const waiting = publish(bus, 'waiting', 20_000)
    await bus.close({ timeout: 50 })
    expect([(await sent).code, (await waiting).code]).toEqual(['OUTCOME_UNKNOWN', 'NOT_STORED'])
    place.proxy.resume()
    expect(await storedAfter(place, place.bus())).not.toContain('waiting')
  })

  test('[P25] what expired in all partitions holds nobody up once Redis is back', async () => {
    const place = await faultyPlace({ partitions: 16 })
    const bus = await connected(place)
    await loseRedis(place.proxy, bus)
    const keys = Array.from({ length: 64 }, (_, i) => `order:${i}`)
    const expired = keys.map((key) => bus.publish('order.paid', 0, { key, timeout: 200 }).catch(({ code }) => code))
    expect(new Set(await Promise.all(expired))).toEqual(new Set(['NOT_STORED']))
    const connections = () => bus.telemetry.counts().get('redis.connected')
    await place.proxy.accept()
    await eventually(() => connections() === 6)
    for (const key of keys) await bus.publish('order.paid', 1, { key, timeout: '3s' })
  })

  test('[P25] a process that was paused past its deadline takes the answers that have come meanwhile', async () => {
    const place = await faultyPlace()
    const timeoutMs = 500
    const child = spawnNode('fault-publisher.mjs', { args: [place.proxy.url, place.namespace, String(timeoutMs)] })
    await child.waitForLine('ready')
    place.proxy.onCommand((command) => (isPublish(command) ? 'hold' : 'forward'))
    child.send(JSON.stringify(['order:1', 'order:2'].map((key) => ['order.paid', key, { key }])))
    await eventually(() => place.proxy.held.length === 1, { everyMs: 1 })
    child.kill('SIGSTOP')
    const stoppedAt = performance.now()
    place.proxy.onCommand()
    place.proxy.release()
    await eventually(async () => (await place.log()).length === 2)
    await eventually(() => performance.now() - stoppedAt > timeoutMs + 100)
    child.kill('SIGCONT')
    const answers = JSON.parse((await child.waitForLine(/^answers /)).slice('answers '.length))
    expect(answers).toMatchObject([{ duplicate: false }, { duplicate: false }])
  })
})

describe('at random', () => {
  /** Stalls, cuts, refuses and holds, for random times, until told to stop; then the network is sound again. */
  async function disturb({ proxy }: FaultyPlace, random: Random, enough: () => boolean): Promise<void> {
    const wait = (ms: number) => new Promise((resolve) => setTimeout(resolve, random.below(ms)))
    proxy.onCommand((command) => (isPublish(command) && random.float() < 0.01 ? 'hold' : 'forward'))
    while (!enough()) {
      const kind = random.float()
      if (kind < 0.4) proxy.stall()
      else if (kind < 0.7) proxy.refuse()
      if (kind > 0.3) proxy.cut()
      await wait(250)
      proxy.resume()
      await proxy.accept()
      if (random.float() < 0.5) proxy.release()
      await wait(100)
    }
    proxy.onCommand()
    proxy.cut()
    proxy.release()
  }

  test('[P25] NOT_STORED is never in the log, an unknown outcome at most once, an answer exactly once: 500 of each, at random times', async () => {
    const place = await faultyPlace({ partitions: 4 })
    const ledger = new Ledger()
    const enough = () =>
      (['NOT_STORED', 'OUTCOME_UNKNOWN', 'stored'] as const).every((what) => ledger.count(what) >= 500)
    const buses = Array.from({ length: 8 }, () => place.bus())
    const storms = buses.map((bus, n) => {
      const random = randomFrom(n)
      const timeout = () => 10 + random.below(300)
      return publishAtRandom({ bus, name: `bus${n}`, ledger, random, enough, timeout })
    })
    await Promise.all([disturb(place, randomFrom(25), enough), ...storms])

    // Everything that the buses still have goes through before these do.
    for (const [n, bus] of buses.entries())
      for (const key of Array.from({ length: 12 }, (_, i) => `bus${n}:${i}`))
        await ledger.call(`bus${n}`, [key], async ([data]) => [
          await bus.publish('storm.end', data, { key, timeout: '20s' }),
        ])
    await place.quiet()
    ledger.expectToMatch(await place.log())
  })
})

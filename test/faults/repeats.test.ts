/** Whatever the network loses or doubles, a publish is one event and one answer, without any idempotency key. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import { take } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import type { Command, Decision } from '../support/proxy.ts'
import { callsOf, contentsOf } from '../support/stored.ts'
import { Ledger } from './ledger.ts'
import { type FaultyPlace, faultyPlace, isPublish, nextPublish, publishAtRandom, randomFrom } from './storm.ts'

const buses = 20

/** Many buses publish at once until `enough`; every call must be answered. */
async function storm(place: FaultyPlace, enough: () => boolean): Promise<Ledger> {
  const ledger = new Ledger()
  const publishing = Array.from({ length: buses }, (_, n) =>
    publishAtRandom({
      bus: place.bus({ publish: { timeout: '60s' } }),
      name: `bus${n}`,
      ledger,
      random: randomFrom(n),
      enough,
    }),
  )
  await Promise.all(publishing)
  return ledger
}

async function expectAllStoredOnce(place: FaultyPlace, ledger: Ledger): Promise<void> {
  await place.quiet()
  ledger.expectToMatch(await place.log())
  expect(ledger.count('unknown') + ledger.count('refused')).toBe(0)
  expect(ledger.count('stored')).toBeGreaterThan(500)
}

// A silent connection counts as dead after up to 7.5 s; they pass while the other tests run.
let silence: ReturnType<typeof meetSilence>
const ends: (() => Promise<unknown>)[] = []
beforeAll(() => {
  silence = meetSilence()
  silence.catch(() => undefined)
})
afterAll(async () => {
  for (const end of ends.reverse()) await end()
})

/** The first publish and the first read are carried out and never answered; more is published meanwhile. */
async function meetSilence() {
  const place = await faultyPlace({ whenDone: (end) => void ends.push(end) })
  const live = place.bus().live('order.*')
  await live.ready()
  const silenced = new Set<string>()
  place.proxy.onCommand((command) => {
    const kind = isPublish(command) ? 'publish' : command.name
    if (!['publish', 'XRANGE'].includes(kind) || silenced.has(kind)) return 'forward'
    silenced.add(kind)
    return 'swallow'
  })
  const bus = place.bus({ publish: { timeout: '20s' } })
  const answers = [bus.publish('order.paid', 0, { key: 'order:0' })]
  const meanwhile = setInterval(() => {
    const n = answers.length
    answers.push(bus.publish('order.paid', n, { key: `order:${n}` }))
  }, 1_000)
  await answers[0]
  clearInterval(meanwhile)
  const delivered = await take(live, answers.length)
  return { answers: await Promise.all(answers), delivered, log: await place.log() }
}

const contents = ({ redis, namespace }: FaultyPlace) => contentsOf(redis, namespace)
/** A copy that came before its script was known has done nothing. */
const kindsOf = (copies: readonly { reply: unknown }[]) =>
  [...new Set(copies.map(({ reply }) => (Array.isArray(reply) ? reply[0] : String(reply))))]
    .filter((kind) => !kind.includes('NOSCRIPT'))
    .sort()

describe('one publish', () => {
  const ways: [string, number, (bus: Bus) => Promise<unknown>][] = [
    ['publish', 1, (bus) => bus.publish('order.paid', 1, { key: 'order:1' })],
    ['publish without key', 1, (bus) => bus.publish('order.paid', 1)],
    ['publish with expectPrev', 1, (bus) => bus.publish('order.paid', 1, { key: 'order:1', expectPrev: null })],
    [
      'commit',
      2,
      (bus) =>
        bus.commit(
          'order:1',
          [
            ['order.paid', 1],
            ['order.sent', 2],
          ],
          { state: 3, expectPrev: null },
        ),
    ],
    [
      'publishAll',
      2,
      (bus) =>
        bus.publishAll([
          { type: 'order.paid', key: 'order:1' },
          { type: 'order.sent', key: 'order:1' },
        ]),
    ],
  ]

  test.each(ways)(
    '[P29] connection cut after the script ran, no idempotency key: one event, one answer (%s)',
    async (_, events, publish) => {
      const place = await faultyPlace({ partitions: 1 })
      const bus = place.bus()
      nextPublish(place.proxy, 'drop-reply')
      const answers = [await publish(bus)].flat()
      const log = await place.log()
      expect(answers).toMatchObject(log.map(({ id, seq, prev }) => ({ id, seq, prev, duplicate: false })))
      expect(log).toHaveLength(events)
      expect(bus.telemetry.counts().get('publish.repeated')).toBe(1)
      expect(place.proxy.count('EVALSHA')).toBeGreaterThanOrEqual(2)
    },
  )

  test('[P29] a late copy of the command: nothing written, its answer is the stored one or "late"', async () => {
    const place = await faultyPlace({ partitions: 1 })
    const bus = place.bus()
    const first = await bus.publish('order.paid', 1, { key: 'order:1' })
    await bus.commit('order:1', [['order.sent', 2]], { state: { sent: true } })
    // A plain one that came before is left to publish.lua, as the copies of the storm below show.
    const third = await bus.publish('order.closed', 3, { key: 'order:1', idempotencyKey: 'three' })
    const before = await contents(place)

    const copies = await place.proxy.replayLater(isPublish)
    expect(copies.map(({ reply }) => (reply as string[]).slice(0, 3))).toEqual([
      ['late'],
      ['late'],
      ['stored', String(third.seq), String(third.prev)],
    ])
    expect(await contents(place)).toEqual(before)
    expect((await bus.publish('order.paid', 4, { key: 'order:1' })).prev).toBe(third.seq)
    expect(first.prev).toBeNull()
  })

  test('[P29] the original arrives only after its repeat, and after later publishes: nothing written', async () => {
    const place = await faultyPlace({ partitions: 1 })
    const bus = place.bus()
    nextPublish(place.proxy, 'hold')
    const publishing = bus.publish('order.paid', 1, { key: 'order:1' })
    await eventually(() => place.proxy.held.length === 1)
    place.proxy.cut()
    const first = await publishing
    const second = await bus.publish('order.paid', 2, { key: 'order:1' })
    const before = await contents(place)
    const ran = await callsOf(place.redis, 'evalsha')
    place.proxy.release()
    await place.quiet()
    expect(await callsOf(place.redis, 'evalsha')).toBe(ran + 1)
    expect(await contents(place)).toEqual(before)
    expect((await place.log()).map(({ id }) => id)).toEqual([first.id, second.id])
  })
})

describe('a thousand of each', () => {
  const faults = 1_000

  test.each([
    ['connections cut after the script ran', 'drop-reply'],
    ['connections cut before the script ran', 'cut-before'],
  ] as const)('[P29] %s: no event twice, none lost, order kept', async (_, decision) => {
    const place = await faultyPlace({ partitions: 4 })
    const random = randomFrom(29)
    let made = 0
    place.proxy.onCommand((command): Decision => {
      if (!isPublish(command) || made >= faults || random.float() < 0.5) return 'forward'
      made += 1
      return decision
    })
    await expectAllStoredOnce(place, await storm(place, () => made >= faults))
  })

  test('[P29] replies lost on connections that stay open until they are given up: no event twice, none lost, order kept', async () => {
    const place = await faultyPlace()
    const random = randomFrom(8)
    let silent = new Set<number>()
    let lost = 0
    place.proxy.onCommand((command): Decision => {
      if (!isPublish(command) || lost >= faults) return 'forward'
      const alreadySilent = silent.has(command.connection)
      if (!alreadySilent && random.float() < 0.5) return 'forward'
      lost += 1
      silent.add(command.connection)
      return alreadySilent ? 'forward' : 'swallow'
    })
    const giveUp = async () => {
      while (lost < faults) {
        await eventually(() => silent.size >= buses || lost >= faults, { timeoutMs: 20_000, everyMs: 2 })
        silent = new Set()
        place.proxy.cut()
      }
    }
    const [ledger] = await Promise.all([storm(place, () => lost >= faults), giveUp()])
    await expectAllStoredOnce(place, ledger)
  })

  test('[P29] doubled requests, the copy before or after the original, and again much later: no event twice, none lost, order kept', async () => {
    const place = await faultyPlace()
    const random = randomFrom(2)
    const originals = new Map<Command, Decision>()
    place.proxy.onCommand((command): Decision => {
      if (!isPublish(command) || originals.size >= faults || random.float() < 0.2) return 'forward'
      const decision = { copy: random.pick(['before', 'after'] as const) }
      originals.set(command, decision)
      return decision
    })
    await expectAllStoredOnce(place, await storm(place, () => originals.size >= faults))
    await eventually(() => place.proxy.copies.length >= faults)
    expect(kindsOf(place.proxy.copies)).toEqual(['stored', 'whole'])

    const before = await contents(place)
    const late = await place.proxy.replayLater((command) => originals.has(command))
    expect(late).toHaveLength(faults)
    expect(kindsOf(late)).toEqual(['late', 'stored', 'whole'])
    expect(await contents(place)).toEqual(before)
  })

  test('[P29] originals that the network keeps until after their repeats: no event twice, none lost, order kept', async () => {
    const place = await faultyPlace({ partitions: 4 })
    const random = randomFrom(3)
    let kept = 0
    let standing = 0
    place.proxy.onCommand((command): Decision => {
      if (!isPublish(command) || kept >= faults || random.float() < 0.5) return 'forward'
      kept += 1
      standing += 1
      return 'hold'
    })
    const deliverLate = async () => {
      while (kept < faults) {
        await eventually(() => standing >= buses || kept >= faults, { timeoutMs: 20_000, everyMs: 2 })
        standing = 0
        place.proxy.cut()
        // Sometimes the originals are first, sometimes their repeats and what follows.
        if (random.float() < 0.5) place.proxy.release()
      }
      place.proxy.cut()
      place.proxy.release()
    }
    const [ledger] = await Promise.all([storm(place, () => kept >= faults), deliverLate()])
    await expectAllStoredOnce(place, ledger)
  })
})

describe('a connection that falls silent and stays open', () => {
  test('[P29] [L05] is given up by itself, whatever is written to it: one event, one answer, and the live reader gets it', async () => {
    const { answers, delivered, log } = await silence
    const byNumber = log.toSorted((a, b) => Number(a.json) - Number(b.json)).map(({ id }) => id)
    expect(byNumber).toEqual(answers.map(({ id }) => id))
    expect(delivered.map(({ id }) => id).sort()).toEqual(byNumber.toSorted())
  })
})

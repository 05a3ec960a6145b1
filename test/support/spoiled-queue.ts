/** A sound queue with something in every place, and the means to spoil it behind Busbar's back. */
import type { Redis } from 'ioredis'
import type { Bus } from '../../src/bus.ts'
import type { Finding } from '../../src/fsck.ts'
import { type LaneRecord, placeField, readRecord } from '../../src/lanes/record.ts'
import { type LaneKeys, queueKeys, type RouteKeys, routeKeys } from '../../src/redis/keys.ts'
import { runScript } from '../../src/redis/script.ts'
import { settleScript } from '../lanes/one-act.ts'
import { plainRedis, testBus } from './bus.ts'
import { collect } from './log.ts'

export interface SpoiledQueue {
  readonly bus: Bus
  readonly redis: Redis
  readonly keys: LaneKeys
  readonly route: RouteKeys
  /** Of the lane `acme`: three that wait, the last of them the one with a priority. */
  readonly waiting: readonly string[]
  readonly held: { readonly token: string; readonly id: string }
  readonly later: string
  readonly dead: string
  findings(): Promise<Finding[]>
  recordOf(lane: string): Promise<LaneRecord>
  /** Changes what a lane's record says. */
  rewrite(lane: string, change: Partial<LaneRecord>): Promise<void>
}

/** As store.part.lua packs it. */
export function packRecord(record: LaneRecord): Buffer {
  const { head, tail, bytes, ranked, later, held, dead, left, notBefore, credit, parked, behind, paced } = record
  const packed = Buffer.alloc(105, '+')
  for (const [i, number] of [head, tail, bytes, held, left].entries()) packed.writeDoubleLE(number, 8 * i)
  for (const [i, number] of [ranked, later, dead, notBefore, credit, parked, behind, paced].entries())
    packed.writeDoubleLE(number, 41 + 8 * i)
  return packed
}

/** acme: three waiting, one held, one for later, one dead; globex: two waiting; slow: one, and it has to wait. */
export async function soundQueue(): Promise<SpoiledQueue> {
  const bus = testBus({ partitions: 2 }) as unknown as Bus
  const redis = plainRedis()
  const keys = queueKeys(bus.namespace, 'mail')
  const queue = bus.queue('mail', { match: 'order.*', weights: { globex: 2 }, lease: '1h' })
  const send = (tenant: string, options = {}) =>
    queue.send({ n: 1 }, { tenant, idempotencyKey: crypto.randomUUID(), ...options })
  const claimed = async (tenant: string) => {
    await send(tenant)
    return (await queue.claim({ lease: '1h' })).items[0]!
  }
  const dead = await claimed('acme')
  await dead.dead('poison')
  await (await claimed('acme')).ack()
  const held = await claimed('acme')
  const { token, id } = await claimed('slow')
  await runScript(redis, settleScript, {
    keys,
    settlements: [{ token, id, outcome: { kind: 'throttle', forMs: 3_600_000 } }],
  })
  const sent = []
  for (const options of [{}, {}, { priority: 5 }]) sent.push(await send('acme', options))
  for (let i = 0; i < 2; i += 1) await send('globex')
  const later = await send('acme', { delay: '1h' })
  return {
    ...{ bus, redis, keys, route: routeKeys(bus.namespace) },
    waiting: sent.map(({ id }) => id),
    held: { token: held.token, id: held.id },
    later: later.id,
    dead: dead.id,
    findings: () => collect(bus.fsck()),
    recordOf: async (lane) => readRecord((await redis.hgetBuffer(keys.lanes, lane))!),
    async rewrite(lane, change) {
      const record = readRecord((await redis.hgetBuffer(keys.lanes, lane))!)
      await redis.hset(keys.lanes, lane, packRecord({ ...record, ...change }))
    },
  }
}

/** A lane with these items waiting, put there past the scripts. */
export async function fillLane(redis: Redis, keys: LaneKeys, lane: string, ids: readonly string[]): Promise<void> {
  const texts = ids.map((id) => `${id} 0 ${lane} 0 0 1 0 \n{"type":"mail","tenant":"${lane}"}\n1`)
  const bytes = texts.reduce((sum, text) => sum + text.length, 0)
  const empty = {
    ranked: 0,
    later: 0,
    held: 0,
    dead: 0,
    left: 0,
    notBefore: 0,
    credit: 0,
    parked: 0,
    behind: 0,
    paced: 0,
  }
  const turn = await redis.hincrby(keys.store, 'turn', 1)
  await redis
    .pipeline()
    .hset(keys.items, ...texts.flatMap((text, i) => [placeField(lane, i), text]))
    .hset(keys.lanes, lane, packRecord({ ...empty, head: 0, tail: ids.length, bytes }))
    .hincrby(keys.store, 'waiting', ids.length)
    .hincrby(keys.store, 'in', ids.length)
    .hincrby(keys.store, 'bytes', bytes)
    .zadd(keys.turns, turn, lane)
    .exec()
}

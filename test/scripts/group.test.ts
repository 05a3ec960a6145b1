/** Every reply of group/*.lua; how partitions are divided, handed over and fenced. The tests set the clock. */
import fc from 'fast-check'
import { describe, expect, onTestFinished, test } from 'vitest'
import { commitScript, type Grant, type HeartbeatReply, heartbeatScript, type Said } from '../../src/group/scripts.ts'
import { groupKeys } from '../../src/redis/keys.ts'
import { runScript } from '../../src/redis/script.ts'
import { freshNamespace, plainRedis } from '../support/bus.ts'

const timing = { heartbeatMs: 1_000, expiryMs: 5_000, graceMs: 8_000, joinDelayMs: 500 }
type MemberReply = Extract<HeartbeatReply, { kind: 'member' }>

/** A group of its own, at a time that only the test moves. */
function testGroup(partitions = 16) {
  const redis = plainRedis()
  const keys = groupKeys(freshNamespace(), 'stream.search')
  onTestFinished(async () => void (await redis.unlink(keys.group, keys.members, keys.owners, keys.cursors)))
  let nowMs = 1_000_000
  const beat = (name: string, act: 'join' | 'beat' | 'leave' = 'beat', start = `${name}-1`) =>
    runScript(redis, heartbeatScript, { keys, nowUs: nowMs * 1000, act, name, start, partitions, timing, about: '{}' })
  const member = async (name: string, act: 'join' | 'beat' = 'beat') => {
    const reply = await beat(name, act)
    expect(reply.kind).toBe('member')
    return reply as MemberReply
  }
  const commit = (...said: Said[]) => runScript(redis, commitScript, { keys, said })
  return {
    redis,
    keys,
    beat,
    member,
    commit,
    pass: (ms: number) => {
      nowMs += ms
    },
    grants: async (name: string) => (await member(name)).grants,
    /** Lets go of all that the member is asked for. */
    async release(name: string) {
      const asked = (await member(name)).grants.filter(({ releaseInMs }) => releaseInMs !== undefined)
      await commit(...asked.map(({ partition, epoch, cursor }) => ({ partition, epoch, cursor, release: true })))
      return asked.length
    },
  }
}

const numbers = (grants: readonly Grant[]) => grants.map(({ partition }) => partition)
const all = (count: number) => Array.from({ length: count }, (_, i) => i)

describe('division', () => {
  test('the first member has everything at once', async () => {
    const group = testGroup(4)
    const { members, grants, dueInMs } = await group.member('a', 'join')
    expect([members, dueInMs]).toEqual([1, undefined])
    expect(grants).toEqual(
      all(4).map((partition) => expect.objectContaining({ partition, cursor: 0, releaseInMs: undefined })),
    )
    expect(new Set(grants.map(({ epoch }) => epoch))).toEqual(new Set([1_000_000_000]))
  })

  test('workers 1 → 2 → 3 on 16 partitions: 8 move, then 5; the others never pause', async () => {
    const group = testGroup()
    const first = (await group.member('a', 'join')).grants
    expect((await group.member('b', 'join')).dueInMs).toBe(500)
    expect(await group.grants('a')).toEqual(first)
    group.pass(500)
    expect(await group.release('a')).toBe(8)
    expect(await group.grants('a')).toEqual(first.slice(0, 8))
    expect(numbers(await group.grants('b'))).toEqual(all(16).slice(8))
    await group.member('c', 'join')
    group.pass(500)
    const moved = (await group.release('a')) + (await group.release('b'))
    expect(moved).toBe(5)
    const counts = await Promise.all(['a', 'b', 'c'].map(async (name) => (await group.grants(name)).length))
    expect(counts.sort()).toEqual([5, 5, 6])
  })

  test('members that start together are divided once', async () => {
    const group = testGroup(6)
    await group.member('a', 'join')
    for (const name of ['b', 'c']) {
      group.pass(100)
      await group.member(name, 'join')
    }
    group.pass(400)
    expect(await group.release('a')).toBe(4)
    expect([(await group.grants('b')).length, (await group.grants('c')).length]).toEqual([2, 2])
  })

  test('more members than partitions: the rest stand by and take over', async () => {
    const group = testGroup(2)
    for (const name of ['a', 'b', 'c']) await group.member(name, 'join')
    group.pass(500)
    await group.release('a')
    expect(await group.grants('c')).toEqual([])
    const [held] = await group.grants('b')
    expect(await group.beat('b', 'leave')).toEqual({ kind: 'left' })
    const [taken] = await group.grants('c')
    expect(taken).toMatchObject({ partition: held!.partition })
    expect(taken!.epoch).toBeGreaterThan(held!.epoch)
  })

  test('joins, leaves and expiries in any order: balanced, complete, and no more moves than that needs', async () => {
    const step = fc.record({ who: fc.integer({ min: 0, max: 6 }), act: fc.constantFrom('join', 'leave', 'kill') })
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 40 }),
        fc.array(step, { maxLength: 10 }),
        async (partitions, steps) => {
          const group = testGroup(partitions)
          const there = new Set<string>()
          const settle = async () => {
            // Long enough for the expiry of one that was killed when nobody else was there.
            for (let s = 0; s < 3; s += 1) {
              group.pass(1_000)
              for (const name of there) await group.member(name)
            }
            group.pass(500)
            for (const name of there) await group.release(name)
            return new Map(
              await Promise.all([...there].map(async (name) => [name, numbers(await group.grants(name))] as const)),
            )
          }
          let before = new Map<string, number[]>()
          for (const { who, act } of steps) {
            const name = `m${who}`
            if (act === 'join') {
              await group.member(name, there.has(name) ? 'beat' : 'join')
              there.add(name)
            } else if (there.delete(name)) {
              if (act === 'leave') await group.beat(name, 'leave')
              else
                for (let s = 0; s < 6; s += 1) {
                  group.pass(1_000)
                  for (const other of there) await group.member(other)
                }
            }
            const after = await settle()
            expectFair(partitions, before, after)
            before = after
          }
        },
      ),
      { numRuns: 30 },
    )
  })

  function expectFair(partitions: number, before: Map<string, number[]>, after: Map<string, number[]>): void {
    if (after.size === 0) return
    expect([...after.values()].flat().sort((a, b) => a - b)).toEqual(all(partitions))
    const counts = [...after.values()].map(({ length }) => length)
    expect(Math.max(...counts) - Math.min(...counts)).toBeLessThanOrEqual(1)
    // Who was and is there loses only what is over its share, with the larger shares going to those with the most.
    const stayed = [...after.keys()].filter((name) => before.has(name))
    const had = stayed.map((name) => before.get(name)!.length).sort((a, b) => b - a)
    const [least, more] = [Math.floor(partitions / after.size), partitions % after.size]
    const needed = had.reduce((sum, count, i) => sum + Math.max(0, count - least - (i < more ? 1 : 0)), 0)
    const lost = stayed.flatMap((name) =>
      before.get(name)!.filter((partition) => !after.get(name)!.includes(partition)),
    )
    expect(lost.length).toBe(needed)
  }
})

describe('handover', () => {
  async function twoMembers() {
    const group = testGroup(2)
    await group.member('a', 'join')
    await group.member('b', 'join')
    group.pass(500)
    return group
  }

  test('who never lets go loses the partition after grace, and its commits are stale', async () => {
    const group = await twoMembers()
    const [kept, asked] = await group.grants('a')
    expect([kept!.releaseInMs, asked!.releaseInMs]).toEqual([undefined, 8_000])
    for (let s = 0; s < 7; s += 1) {
      group.pass(1_000)
      expect((await group.grants('a')).length).toBe(2)
      const { grants, dueInMs } = await group.member('b')
      expect(grants).toEqual([])
      // The end of the grace, or the moment at which the other one would expire, whichever comes first.
      expect(dueInMs).toBeLessThanOrEqual(7_000 - s * 1_000)
    }
    group.pass(1_000)
    const [taken] = await group.grants('b')
    expect(taken).toMatchObject({ partition: asked!.partition, releaseInMs: undefined })
    expect(await group.grants('a')).toEqual([kept])
    const said = (grant: Grant, cursor: number) => ({
      partition: grant.partition,
      epoch: grant.epoch,
      cursor,
      release: false,
    })
    expect(await group.commit(said(asked!, 900), said(kept!, 7), said(taken!, 8))).toEqual(['stale', 'done', 'done'])
    expect(await group.redis.hgetall(group.keys.cursors)).toEqual({ 0: '7', 1: '8' })
  })

  test('a wish that is withdrawn leaves the partition under its epoch', async () => {
    const group = await twoMembers()
    const before = await group.grants('a')
    await group.beat('b', 'leave')
    expect(await group.grants('a')).toEqual(before.map((grant) => ({ ...grant, releaseInMs: undefined })))
    const [, second] = before
    expect(await group.commit({ partition: 1, epoch: second!.epoch, cursor: 3, release: true })).toEqual(['done'])
    expect((await group.grants('a')).length).toBe(2)
  })

  test('a cursor never moves backwards, and is where the next owner begins', async () => {
    const group = testGroup(1)
    const [grant] = (await group.member('a', 'join')).grants
    const say = (cursor: number) => group.commit({ partition: 0, epoch: grant!.epoch, cursor, release: false })
    await say(20)
    await say(10)
    await group.beat('a', 'leave')
    expect(await say(30)).toEqual(['stale'])
    expect((await group.member('b', 'join')).grants).toMatchObject([{ cursor: 20 }])
  })
})

describe('silence', () => {
  test('a silent member is gone after the expiry, its partitions go to the others under higher epochs', async () => {
    const group = testGroup(2)
    await group.member('a', 'join')
    await group.member('b', 'join')
    group.pass(500)
    await group.release('a')
    const [held] = await group.grants('b')
    for (let s = 0; s < 5; s += 1) {
      group.pass(1_000)
      expect((await group.grants('a')).length).toBe(1)
    }
    group.pass(1)
    const grants = await group.grants('a')
    expect(numbers(grants)).toEqual([0, 1])
    expect(await group.commit({ partition: held!.partition, epoch: held!.epoch, cursor: 1, release: false })).toEqual([
      'stale',
    ])
  })

  test('after a time in which nobody was heard nobody expires before all could be heard', async () => {
    const group = testGroup(2)
    await group.member('a', 'join')
    await group.member('b', 'join')
    group.pass(500)
    await group.release('a')
    const before = [await group.grants('a'), await group.grants('b')]
    group.pass(30_000)
    const first = await group.grants('a')
    group.pass(1_900)
    expect([first, await group.grants('b')]).toEqual(before)
    group.pass(1_000)
    expect([await group.grants('a'), await group.grants('b')]).toEqual(before)
  })

  test('a restart under the same name takes over at once; the one before hears that it is replaced', async () => {
    const group = testGroup(2)
    const before = (await group.member('a', 'join')).grants
    const again = (await group.beat('a', 'join', 'a-2')) as MemberReply
    expect(numbers(again.grants)).toEqual(numbers(before))
    expect(again.grants.every(({ epoch }, i) => epoch > before[i]!.epoch)).toBe(true)
    expect(await group.beat('a', 'beat', 'a-1')).toEqual({ kind: 'replaced' })
    expect(await group.beat('a', 'leave', 'a-1')).toEqual({ kind: 'left' })
    expect(((await group.beat('a', 'beat', 'a-2')) as MemberReply).grants).toEqual(again.grants)
    expect(await group.redis.hgetall(group.keys.group)).toMatchObject({ joined: '2', replaced: '1' })
  })
})

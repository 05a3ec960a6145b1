import { describe, expect, test } from 'vitest'
import type { TaskContext } from '../../src/index.ts'
import { freshNamespace } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { busesOf, clockFrom, quickGroup, spawnWorker, type Watched, watchedBus } from '../support/workers.ts'

const runAll = async (workers: readonly Watched[]) => {
  for (const { bus } of workers) await bus.run()
}
const runnerOf = (workers: readonly Watched[]) =>
  workers.findIndex(({ count }) => count('task.gained') > count('task.lost'))

describe('where it runs', () => {
  test('[S17] a startup task: once in each process; of the leader once on one, and again on the next when that one closes', async () => {
    const workers = busesOf(3)
    const each: number[] = []
    const led: number[] = []
    for (const [i, { bus }] of workers.entries())
      bus.task('warm', { on: 'each' }, () => each.push(i)).task('lead', {}, () => led.push(i))
    expect([each, led]).toEqual([[], []])
    await runAll(workers)
    await eventually(() => led.length === 1 && each.length === 3)
    expect(each.sort()).toEqual([0, 1, 2])
    const first = led[0]!
    const closing = performance.now()
    await workers[first]!.bus.close()
    await eventually(() => led.length === 2)
    // It left: nobody waited for its expiry.
    expect(performance.now() - closing).toBeLessThan(quickGroup.expiry - 200)
    expect(led[1]).not.toBe(first)
    expect(runnerOf(workers)).toBe(led[1])
    expect(each).toHaveLength(3)
  })

  test('[S17] an interval on the leader: on exactly one of three processes, elsewhere when it is killed', async () => {
    const namespace = freshNamespace()
    const workers = ['a', 'b', 'c'].map((name) => spawnWorker(namespace, name))
    await Promise.all(workers.map((worker) => worker.waitForLine('ready')))
    const beats = () => workers.map(({ stdout }) => stdout.filter((line) => line === 'beat').length)
    await eventually(() => beats().some((count) => count >= 5))
    expect(beats().filter((count) => count > 0)).toHaveLength(1)

    const first = workers[beats().findIndex((count) => count > 0)]!
    first.kill()
    const others = workers.filter((worker) => worker !== first)
    const next = await eventually(() => others.find(({ stdout }) => stdout.includes('beat')) ?? false)
    const before = next.stdout.length
    await eventually(() => next.stdout.length >= before + 5)
    expect(others.filter(({ stdout }) => stdout.includes('beat'))).toEqual([next])
    expect(workers.flatMap(({ stdout }) => stdout.filter((line) => line === 'lost'))).toEqual([])
  })

  test('[S17] whoever leads: it runs where it is declared and named, and moves only to another such process', async () => {
    const leader = watchedBus()
    const { namespace } = leader.bus
    await leader.bus.run()
    await eventually(() => leader.count('leader.gained') === 1)
    const ran: string[] = []
    const start = async (worker: string, only?: string[]) => {
      const watched = watchedBus({ namespace, worker })
      watched.bus.task('first', {}, () => ran.push(`first on ${worker}`))
      watched.bus.task('second', {}, () => ran.push(`second on ${worker}`))
      await watched.bus.run(only ? { only } : {})
      return watched
    }
    const one = await start('one', ['first'])
    await start('two', ['second'])
    await eventually(() => ran.length === 2)
    expect(ran.sort()).toEqual(['first on one', 'second on two'])
    await start('three')
    await one.bus.close()
    await eventually(() => ran.length === 3)
    expect(ran[2]).toBe('first on three')
    expect(leader.count('leader.lost')).toBe(0)
  })

  test('[S17] an interval in each process ticks in all of them', async () => {
    const workers = busesOf(2)
    const ticks: number[][] = [[], []]
    for (const [i, { bus }] of workers.entries())
      bus.task('poll', { every: '100ms', on: 'each' }, () => ticks[i]!.push(1))
    await runAll(workers)
    await eventually(() => ticks.every(({ length }) => length >= 3))
  })

  const nines: [string, string, string][] = [
    ['in summer', '2026-07-01T06:59:59.600Z', '2026-07-01T07:00:00.000Z'],
    ['in winter', '2026-12-01T07:59:59.600Z', '2026-12-01T08:00:00.000Z'],
  ]
  test.each(nines)('[S17] cron at nine in Berlin, %s: by the time of its zone, on one of two', async (_, now, tick) => {
    const workers = busesOf(2, { clock: clockFrom(now) })
    const ran: string[] = []
    const eachRan: string[] = []
    for (const { bus } of workers)
      bus
        .task('report', { cron: '0 9 * * *', timezone: 'Europe/Berlin' }, (ctx) => ran.push(ctx.tick.toISOString()))
        .task('utc', { cron: '0 9 * * *' }, () => ran.push('nine in UTC'))
        .task('own', { cron: '0 9 * * *', timezone: 'Europe/Berlin', on: 'each' }, (ctx) =>
          eachRan.push(ctx.tick.toISOString()),
        )
    await runAll(workers)
    await eventually(() => eachRan.length === 2 && ran.length > 0)
    expect(ran).toEqual([tick])
    expect(eachRan).toEqual([tick, tick])
  })
})

describe('how it runs', () => {
  test('[S17] never twice at once: ticks that are due meanwhile are left out and counted; then it goes on', async () => {
    const { bus, count } = watchedBus()
    let running = 0
    let most = 0
    let runs = 0
    let finish: () => void = () => undefined
    bus.task('slow', { every: '100ms' }, async () => {
      running += 1
      most = Math.max(most, running)
      runs += 1
      if (runs === 1)
        await new Promise<void>((resolve) => {
          finish = resolve
        })
      running -= 1
    })
    await bus.run()
    await eventually(() => count('task.skipped') >= 2)
    expect(runs).toBe(1)
    finish()
    await eventually(() => runs >= 3)
    expect(most).toBe(1)
  })

  test('[S17] one that throws is reported, and ticks on', async () => {
    const { bus, count, events } = watchedBus()
    let runs = 0
    bus.task('broken', { every: '100ms' }, () => {
      runs += 1
      throw new Error('no')
    })
    await bus.run()
    await eventually(() => runs >= 2)
    expect(count('task.failed')).toBe(runs)
    expect(events.find(({ name }) => name === 'task.failed')!.fields).toMatchObject({
      task: 'broken',
      problem: 'Error: no',
    })
  })

  test('[S17] losing the leadership aborts the task, and so does close; both wait for it to end', async () => {
    const [first, second] = busesOf(2) as [Watched, Watched]
    const contexts: TaskContext[] = []
    const ended: TaskContext[] = []
    const untilAborted = async (ctx: TaskContext) => {
      contexts.push(ctx)
      await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
      ended.push(ctx)
      throw new Error('given up')
    }
    for (const { bus } of [first, second]) bus.task('long', {}, untilAborted)
    await first.bus.run()
    await eventually(() => contexts.length === 1)
    expect(contexts[0]).toMatchObject({ name: 'long', tick: expect.any(Date) })
    // Another process under its name takes its place.
    const usurper = watchedBus({ namespace: first.bus.namespace, worker: 'w0' })
    usurper.bus.task('long', {}, () => undefined)
    await usurper.bus.run()
    await eventually(() => ended.length === 1)
    // In the groups of all running processes, of routers, and of the task.
    await eventually(() => first.count('group.replaced') === 3)
    expect(first.count('task.lost')).toBe(1)
    await second.bus.run()
    await usurper.bus.close()
    await eventually(() => contexts.length === 2)
    await second.bus.close()
    expect(ended).toEqual(contexts)
    expect(second.count('task.failed') + first.count('task.failed')).toBe(0)
  })
})

describe('bad declarations', () => {
  const wrong: [string, string, object, RegExp][] = [
    ['every and cron', 'a', { every: '1s', cron: '* * * * *' }, /either every or cron/],
    ['bad cron', 'a', { cron: '61 * * * *' }, /five fields.*"61 \* \* \* \*"/],
    ['a date', 'a', { cron: '2031-01-01T00:00:00' }, /five fields/],
    ['a cron that never ticks', 'a', { cron: '0 0 30 2 *' }, /next tick/],
    ['unknown zone', 'a', { cron: '* * * * *', timezone: 'Mars/Olympus' }, /timezone.*"Mars\/Olympus"/],
    ['a zone without cron', 'a', { timezone: 'UTC' }, /needs a cron/],
    ['too often', 'a', { every: 99 }, /at least 100ms; got 99/],
    ['no duration', 'a', { every: 'soon' }, /"30s".*got "soon"/],
    ['an unknown place', 'a', { on: 'moon' }, /"leader" or "each"/],
    ['a bad name', 'a b', {}, /1 to 64/],
    ['a name twice', 'known', {}, /already/],
  ]
  test.each(wrong)('[S17] %s: refused at once', (_, name, options, message) => {
    const { bus } = watchedBus()
    bus.task('known', {}, () => undefined)
    const declare = () => bus.task(name, options, () => undefined)
    expect(declare).toThrow(expect.objectContaining({ code: 'TASK_INVALID', message: expect.stringMatching(message) }))
  })

  test('[S17] after run(), or without a function: refused', async () => {
    const { bus } = watchedBus()
    expect(() => bus.task('a', {}, undefined as never)).toThrow(/function/)
    await bus.run()
    expect(() => bus.task('late', {}, () => undefined)).toThrow(/before run\(\)/)
  })
})

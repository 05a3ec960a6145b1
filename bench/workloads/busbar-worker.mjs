/**
 * One of several workers: takes its share of the partitions, handles nothing before it is told 'go', then burns CPU for
 * each event. Reports which events it handled, and when it was done with the last.
 */
import { busbar } from '../../dist/index.js'
import { numberOf } from '../harness/events.mjs'
import { processorName } from '../harness/group.mjs'
import { Tally } from '../harness/tally.mjs'

export async function open({ redis, worker, cpuMs, count }) {
  const bus = busbar({ redis: redis.url, namespace: 'bench', worker })
  const tally = new Tally(count)
  const handled = []
  let lastAt = 0
  let go
  const told = new Promise((resolve) => {
    go = resolve
  })
  bus.processor(processorName, { match: '>', from: 'beginning', commit: 'each' }, async (events) => {
    for await (const event of events) {
      await told
      burn(cpuMs)
      tally.saw(event.data)
      handled.push(numberOf(event.data))
      lastAt = now()
    }
  })
  await bus.run({ signals: false })

  return {
    told: go,
    report: () => ({ handled: Uint32Array.from(handled), lastAt, problems: tally.orderProblems() }),
    close: () => bus.close(),
  }
}

/** Comparable between the processes of one machine. */
const now = () => performance.timeOrigin + performance.now()

function burn(ms) {
  const until = performance.now() + ms
  while (performance.now() < until);
}

/**
 * The workers of a run: each with its own proxy, each watched line by line.
 *
 *   starting   the process is there, not yet ready
 *   ready      may hold partitions, may be struck
 *   leaving    was asked to go
 *   gone       its process has ended
 */

import { startActor } from './actor.mjs'
import { nowUs } from './clock.mjs'
import { startProxy } from './proxy.mjs'

const leaveMs = 20_000 // twice what a bus takes at most to close; whoever is killed then shows up as ended by itself

const readers = {
  began: ([partition, seq, epoch, key, n]) => ({ partition, seq, epoch, key, n }),
  ended: ([partition, seq, epoch]) => ({ partition, seq, epoch }),
  gained: ([partition, epoch, cursor]) => ({ partition, epoch, cursor }),
  stale: ([partition, epoch]) => ({ partition, epoch }),
  gap: ([partition]) => ({ partition }),
}

export function createCrew({ redis, namespace, group, history, processor }) {
  const workers = new Map()
  let started = 0
  let isOver = false

  async function hire() {
    started += 1
    const name = `w${started}`
    const worker = {
      name,
      state: 'starting',
      held: new Map(),
      inHand: new Map(),
      endedAt: new Map(),
      standing: undefined,
    }
    workers.set(name, worker)
    worker.proxy = await startProxy({
      redisPort: redis.port,
      keyPart: `{group.stream.${processor}}`,
      committed: (commit) => noteCommit(worker, commit),
    })
    const args = [worker.proxy.url, namespace, name, JSON.stringify(group)]
    worker.actor = startActor('stream-worker.mjs', args, (words) => hear(worker, words))
    worker.actor.exited.then((exit) => {
      const before = worker.state
      worker.state = 'gone'
      workers.delete(name)
      // A held commit may still be passed on, late; the nemesis closes the proxy then.
      if (!worker.holdsCommit) worker.proxy.close()
      const isExpected = before === 'leaving' ? exit.code === 0 : exit.signal === 'SIGKILL'
      if (isExpected || isOver) return
      history.add(before === 'starting' ? 'unstarted' : 'crashed', { t: nowUs(), worker: name, ...exit })
      if (before !== 'leaving') void hire()
    })
    return worker
  }

  function noteCommit({ name }, { t, answeredAt, said, words }) {
    for (const [i, one] of said.entries())
      history.add('commit', { t, answeredAt, worker: name, ...one, word: words[i] })
  }

  function hear(worker, [kind, at, ...fields]) {
    const t = Number(at)
    if (kind === 'ready') {
      if (worker.state === 'starting') worker.state = 'ready'
      history.add('joined', { t, worker: worker.name })
    } else if (kind === 'at') {
      worker.standing = fields[0]
      worker.standingSince = t
    } else if (kind === 'lost') {
      const [partition, epoch, why] = fields
      worker.held.delete(Number(partition))
      history.add('lost', { t, worker: worker.name, partition: Number(partition), epoch: Number(epoch), why })
    } else if (kind in readers) {
      const fact = Object.fromEntries(
        Object.entries(readers[kind](fields)).map(([name, value]) => [name, Number(value)]),
      )
      history.add(kind, { t, worker: worker.name, ...fact })
      keepTrack(worker, kind, fact, t)
    } else history.add(kind, { t, worker: worker.name, said: fields.join(' ') })
  }

  function keepTrack(worker, kind, { partition, seq, epoch }, t) {
    if (kind === 'gained') worker.held.set(partition, epoch)
    if (kind === 'began') worker.inHand.set(partition, seq)
    if (kind === 'began') lastBegan.set(partition, t)
    if (kind === 'ended') worker.inHand.delete(partition)
  }

  const lastBegan = new Map()
  const inState = (state) => [...workers.values()].filter((worker) => worker.state === state)

  return {
    workers,
    hire,
    lastBegan,
    get ready() {
      return inState('ready')
    },
    /** Whoever ends from now on is not replaced. */
    end() {
      isOver = true
    },
    /** Asks it to go, in order. */
    async dismiss(worker) {
      worker.state = 'leaving'
      history.add('left', { t: nowUs(), worker: worker.name })
      worker.actor.kill('SIGTERM')
      const impatience = setTimeout(() => worker.actor.kill('SIGKILL'), leaveMs)
      await worker.actor.exited
      clearTimeout(impatience)
    },
    /** Whether so many are ready and each partition was worked on after this time. */
    isAtWorkSince: (since, count, partitions) =>
      inState('ready').length >= count &&
      Array.from({ length: partitions }, (_, p) => lastBegan.get(p) ?? 0).every((t) => t > since),
  }
}

/**
 * The operations of a walk: after each step each of them says of its item what the reference says, has come there by steps that the table of
 * transitions has, and has been counted once for each end.
 */
import type { Redis } from 'ioredis'
import { expect } from 'vitest'
import type { OperationState } from '../../src/lanes/operation.ts'
import { operationsScript, type StoreInput } from '../../src/lanes/scripts.ts'
import { canFollow, isEnd } from '../../src/operations/transitions.ts'
import { runScript } from '../../src/redis/script.ts'
import type { ReferenceStore } from './reference.ts'
import type { Step } from './steps.ts'

export interface SeenOperations {
  rows: ReadonlyMap<string, { state: OperationState; version: number; attempts: number }>
  total: string
}

/** What an item that is gone has become, by the step after which it was. */
const endOf: Partial<Record<Step['do'], readonly OperationState[]>> = {
  settle: ['succeeded', 'cancelled'],
  settleAll: ['succeeded'],
  pop: ['succeeded', 'failed', 'cancelled'],
  claim: ['failed', 'cancelled'],
  accept: ['failed'],
  acceptAgain: ['failed'],
  discardParked: ['cancelled'],
  extend: ['cancelled'],
  enter: ['cancelled'],
  cancel: ['cancelled'],
}

export class OperationsWalk {
  readonly #entered: string[] = []
  readonly #known = new Map<string, { state: OperationState; version: number }>()
  readonly #ends = { succeeded: 0, failed: 0, cancelled: 0 }
  #step: Step | undefined

  begin(step: Step): void {
    this.#step = step
  }

  /** It may be refused. */
  entered(id: string): void {
    this.#entered.push(id)
  }

  lately(i: number): string | undefined {
    return this.#entered.at(-1 - (i % Math.max(1, this.#entered.length)))
  }

  /** As the store knows it: one whose lease has lapsed is running still. */
  stateOf(id: string): OperationState | 'none' {
    return this.#known.get(id)?.state ?? 'none'
  }

  async look(redis: Redis, store: StoreInput): Promise<SeenOperations> {
    const ask = { act: 'get' as const, names: [...this.#entered] }
    // Before any lease can have lapsed: what it is, not what it reads as.
    const asked = runScript(redis, operationsScript, { ...store, nowMs: 1, ask, detail: false })
    const total = redis.hget(`${store.keys.store.slice(0, -'store'.length)}opCounts`, 'total')
    const rows = (await asked)?.rows ?? []
    return { rows: new Map(rows.map((row) => [row.name, row])), total: (await total) ?? '0 0 0' }
  }

  check({ rows, total }: SeenOperations, reference: ReferenceStore): void {
    const places = placesIn(reference)
    for (const id of this.#entered) {
      const row = rows.get(id)
      const before = this.#known.get(id)
      const place = places.get(id)
      // Refused, or held back.
      if (!row && !before && !place) continue
      const where = `${id} ${JSON.stringify(this.#step)}`
      const { state, version } = row!
      this.#checkState(where, state, before?.state, place, reference.cancels.has(id))
      const steps = version - (before?.version ?? 0)
      expect(
        canFollow(before?.state ?? 'none', state, steps),
        `${where}: ${before?.state} → ${state} in ${steps}`,
      ).toBe(true)
      if (steps > 0 && isEnd(state)) this.#ends[state] += 1
      this.#known.set(id, { state, version })
    }
    const { succeeded, failed, cancelled } = this.#ends
    expect(total).toBe(`${succeeded} ${failed} ${cancelled}`)
  }

  #checkState(
    where: string,
    state: OperationState,
    before: OperationState | undefined,
    place: OperationState | undefined,
    isCancelled: boolean,
  ): void {
    // It waits still, but nobody will have it.
    const expected: OperationState[] = place === 'queued' && isCancelled ? ['cancelled'] : place ? [place] : []
    if (place) return expectOne(where, state, expected)
    if (before && isEnd(before)) return expectOne(where, state, [before])
    expectOne(where, state, endOf[this.#step!.do] ?? [])
  }
}

function expectOne(where: string, state: OperationState, allowed: readonly OperationState[]): void {
  if (!allowed.includes(state)) expect(state, where).toBe(allowed.join(' or '))
}

/** Of each item that is there, what its operation must be. */
function placesIn(reference: ReferenceStore): Map<string, OperationState> {
  const queued = [
    ...[...reference.lanes.values()].flatMap(({ waiting }) => waiting),
    ...[...reference.objects.values()].flat(),
    ...[...reference.later.values()].flatMap(({ work }) => work ?? []),
  ]
  const given = [...reference.dead.values(), ...reference.parked.values()]
  return new Map<string, OperationState>([
    ...queued.map(({ id }) => [id, 'queued'] as const),
    ...[...reference.leases.values()].flatMap(({ items }) => [...items.keys()].map((id) => [id, 'running'] as const)),
    ...given.map(({ work }) => [work.id, 'failed'] as const),
  ])
}

/**
 * What is right and wrong in the order of an ordered store. Four things must hold, whatever happened:
 *
 *   one owner      of an object at most one item waits, is held, is to be tried again or is parked
 *   none forgotten what lies behind an object has an owner before it: someone will let it line up
 *   no gaps        what lies behind an object has the places from its first to before its next
 *   no trace       an object is there because of its owner, and every owner's object is
 */
import { shown } from '../errors.ts'
import type { Finding } from '../fsck-checks.ts'

interface ObjectRow {
  first: number
  next: number
}

export class OrderJudge {
  readonly #queue: string
  readonly #objects = new Map<string, ObjectRow>()
  readonly #owners = new Map<string, string[]>()
  readonly #behind = new Map<string, Set<number>>()

  constructor(queue: string) {
    this.#queue = queue
  }

  takeObject(object: string, first: number, next: number): void {
    this.#objects.set(object, { first, next })
  }

  takeOwner(object: string, id: string): void {
    const owners = this.#owners.get(object)
    if (owners) owners.push(id)
    else this.#owners.set(object, [id])
  }

  takeBehind(object: string, place: number): void {
    const places = this.#behind.get(object)
    if (places) places.add(place)
    else this.#behind.set(object, new Set([place]))
  }

  /** To be asked when everything was taken in. */
  findings(): Finding[] {
    const names = new Set([...this.#objects.keys(), ...this.#owners.keys(), ...this.#behind.keys()])
    return [...names].flatMap((object) =>
      this.#problemsOf(object).map(
        (problem): Finding => ({
          check: 'queue-order',
          where: `object ${shown(object)} of queue ${shown(this.#queue)}`,
          problem,
        }),
      ),
    )
  }

  #problemsOf(object: string): string[] {
    const row = this.#objects.get(object)
    const owners = this.#owners.get(object) ?? []
    const behind = this.#behind.get(object) ?? new Set()
    const problems: string[] = []
    if (owners.length > 1) problems.push(`it has ${owners.length} owners: ${owners.map((id) => shown(id)).join(', ')}`)
    if (!row && owners.length > 0) problems.push('it has an owner, but is not there: others of it may overtake')
    if (!row && behind.size > 0) problems.push(`${behind.size} items lie behind it, but it is not there`)
    if (row && owners.length === 0) problems.push('it has no owner: nobody lets those behind it line up')
    if (row) {
      const there = [...behind].filter((place) => place >= row.first && place < row.next).length
      if (there !== row.next - row.first || there !== behind.size)
        problems.push(
          `${row.next - row.first} items lie behind it from place ${row.first} on, there are ${behind.size}`,
        )
    }
    return problems
  }
}

/** The scripts of tasks/, with what they are given and what they answer. */
import type { WorkersKeys } from '../redis/keys.ts'
import { defineScript } from '../redis/script.ts'

export interface ScheduleInput {
  keys: WorkersKeys
  /** Instead of the server's clock, for tests. */
  nowMs?: number | undefined
  name: string
  definition: string
  most: number
}

export const scheduleScript = defineScript({
  file: new URL('./schedule.lua', import.meta.url),
  keys: ({ keys }: ScheduleInput) => [keys.schedules],
  args: ({ keys, nowMs, name, definition, most }) => [nowMs ?? '', name, definition, most, keys.due],
  reply: ([kind]: ['kept' | 'stored' | 'full']) => kind,
})

export interface FiredInput {
  keys: WorkersKeys
  name: string
  definition: string
  firedMs: number
}

export const firedScript = defineScript({
  file: new URL('./fired.lua', import.meta.url),
  keys: ({ keys }: FiredInput) => [keys.schedules],
  args: ({ name, definition, firedMs }) => [name, definition, firedMs],
  reply: ([kind]: ['done' | 'changed']) => kind,
})

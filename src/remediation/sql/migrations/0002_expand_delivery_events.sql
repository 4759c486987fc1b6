-- The delivery id stands in a header that no signature covers: a recorded body can be sent again under another one. The event's own id
-- is part of the signed bytes.
alter table suture.deliveries add column event_id text;
create unique index delivery_of_an_event_once on suture.deliveries (provider, event_id);
